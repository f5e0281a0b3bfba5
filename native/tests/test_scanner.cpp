#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "syncline/text_scanner.hpp"

namespace {

using syncline::ScanLimits;
using syncline::TextScanner;

std::uint32_t first_four(std::string_view text) {
    std::uint32_t code = 0;
    for (std::size_t i = 4; i-- > 0;) code = code << 8 | static_cast<unsigned char>(text[i]);
    return code;
}

TextScanner made(const std::vector<std::string>& texts, const ScanLimits& limits = {}) {
    std::vector<std::uint32_t> code;
    for (const auto& text : texts) code.push_back(first_four(text));
    return TextScanner(texts, code, std::vector<std::uint32_t>(texts.size()), limits);
}

void lines_are_told_with_their_texts() {
    TextScanner scanner = made({"needle", "hay in", "need"});
    const std::string block = "one\na needle and a needle\nhay\nhay in a needle";
    const auto lines = scanner.scan(block, 0, block.size(), 1);
    CHECK((lines.number == std::vector<std::int64_t>{2, 4}));
    CHECK((lines.begin == std::vector<std::int64_t>{4, 30}));
    CHECK((lines.end == std::vector<std::int64_t>{25, 45}));
    CHECK((lines.last == std::vector<std::int64_t>{2, 5}));
    CHECK((lines.text == std::vector<std::int32_t>{0, 2, 1, 0, 2}));
    CHECK(lines.line == 4);
}

void a_dropped_text_is_not_found() {
    TextScanner scanner = made({"needle", "thread"});
    scanner.drop(0);
    const auto lines = scanner.scan("needle thread", 0, 13, 1);
    CHECK((lines.text == std::vector<std::int32_t>{1}));
}

void a_flood_rests() {
    ScanLimits limits;
    limits.step = 16;
    limits.rest = 3;
    TextScanner scanner = made({"flood"}, limits);
    std::string block;
    for (int i = 0; i < 64; ++i) block += "flood of lines \n";  // one to a stretch
    const auto lines = scanner.scan(block, 0, block.size(), 1);
    CHECK(lines.number.size() == 3);
    CHECK(scanner.scan(block, 0, block.size(), 65).number.size() == 1);  // the stretch in which resting texts are sought
}

void short_blocks_and_bad_codes() {
    TextScanner scanner = made({"needle"});
    CHECK(scanner.scan("", 0, 0, 1).line == 1);
    CHECK(scanner.scan("\n", 0, 1, 1).line == 2);
    CHECK(scanner.scan("need", 0, 4, 1).number.empty());
    CHECK(check::thrown<std::invalid_argument>([] { TextScanner({"needle"}, {1}, {0}, {}); }) ==
          "a code is not four bytes of its text");
}

}  // namespace

SUITE(scanner) {
    lines_are_told_with_their_texts();
    a_dropped_text_is_not_found();
    a_flood_rests();
    short_blocks_and_bad_codes();
}
