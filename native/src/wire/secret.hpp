// Proof of a shared secret: HMAC with SHA-256 (FIPS 180-4, RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace syncline::wire {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(const std::vector<std::uint8_t>& data);
Digest hmac(const std::vector<std::uint8_t>& key, std::string_view role, const std::vector<std::uint8_t>& said);
// Compare in a time that does not tell where they differ.
bool same(const std::uint8_t* one, const std::uint8_t* other, std::size_t size);
// Fill with random bytes of the kernel; throws std::runtime_error when it has none.
void draw(std::uint8_t* out, std::size_t size);

}  // namespace syncline::wire
