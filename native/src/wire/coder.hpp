// A codec by its parameters, on plain memory.
#pragma once

#include "syncline/wire.hpp"

namespace syncline::wire {

bool encode(const Coder& coder, codec::Input in, std::uint8_t* payload);
void decode(const Coder& coder, const std::uint8_t* payload, codec::Output out);
bool reduce(const Coder& coder, const codec::Reduction& all);
bool is_finite(const float* values, std::int64_t size);
// Whether the bytes of values are what is sent.
bool is_plain(const Coder& coder);

}  // namespace syncline::wire
