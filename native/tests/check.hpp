// The whole test framework: SUITE(name) { ... } is a file's tests, CHECK(condition) counts and reports.
#pragma once

#include <cmath>
#include <iostream>
#include <map>
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

// Name -> the tests of one file, all in one program: some leak checkers take seconds for each program that ends.
inline std::map<std::string, void (*)()>& suites() {
    static std::map<std::string, void (*)()> all;
    return all;
}

struct Suite {
    Suite(const char* name, void (*run)()) { suites()[name] = run; }
};

}  // namespace check

#define SUITE(name)                                    \
    static void name##_suite();                        \
    static const check::Suite name##_entry(#name, name##_suite); \
    static void name##_suite()

#define CHECK(condition) check::that((condition), #condition, __FILE__, __LINE__)
