// CRC-32C (Castagnoli), in hardware where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace syncline::wire {

enum class Crc : int { table = 0, hardware = 1 };

// Whether this processor computes CRC-32C itself.
bool has_hardware_crc();
// Continue `crc` (0 at the start) with more bytes; all kinds give the same number.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size);
std::uint32_t crc32c_by(Crc kind, std::uint32_t crc, const void* data, std::size_t size);

}  // namespace syncline::wire
