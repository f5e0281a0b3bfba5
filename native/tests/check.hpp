// The whole test framework: CHECK(condition) counts and reports, finish() is main's return value.
#pragma once

#include <cmath>
#include <iostream>
#include <string>

namespace check {

inline int failures = 0;
inline int checks = 0;

inline void that(bool ok, const char* text, const char* file, int line) {
    ++checks;
    if (ok) return;
    ++failures;
    std::cerr << file << ":" << line << ": failed: " << text << "\n";
}

inline bool close(double a, double b, double tolerance = 1e-9) {
    return std::abs(a - b) <= tolerance * std::fmax(1.0, std::fmax(std::abs(a), std::abs(b)));
}

// The text of the exception that `call` throws, or "" when it throws none.
template <typename Error, typename Call>
std::string thrown(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

inline int finish() {
    std::cout << checks - failures << " of " << checks << " checks passed\n";
    return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(condition) check::that((condition), #condition, __FILE__, __LINE__)
