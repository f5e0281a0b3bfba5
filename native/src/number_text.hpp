// A number as it stands in a message: six digits, as %g writes them. No locale is asked, so no stream is needed.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>

namespace syncline {

template <typename T>
std::string text(T value) {
    std::array<char, 32> out{};
    std::to_chars_result end{};
    if constexpr (std::floating_point<T>)
        end = std::to_chars(out.data(), out.data() + out.size(), value, std::chars_format::general, 6);
    else
        end = std::to_chars(out.data(), out.data() + out.size(), value);
    return {out.data(), end.ptr};
}

}  // namespace syncline
