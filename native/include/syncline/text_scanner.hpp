// Finds many texts at once in the blocks of a log, and the lines on which they stand.
//
// Of each text four bytes are given that are rare in this log. At every position four bytes are hashed into one bitmap
// that fits the first cache; only where a bit is set are they compared with those of the texts, then the whole text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace syncline {

struct ScanLimits {
    std::size_t step = 1 << 18;      // the stretch after which a flood is noticed
    std::size_t rest = 20'000;       // finds after which a text rests
    std::size_t rest_every = 64;     // a resting text is looked for in one stretch of so many
    std::size_t before = 2048;       // how much of an endless line in front of a text is shown
    std::size_t max_line = 4096;     // what is shown of a line
};

// The lines of one block with a text, in order; the texts of all lines stand in one row, each once a line.
struct ScannedLines {
    std::int64_t line = 0;  // the number of the line after the block
    std::vector<std::int64_t> number, begin, end, last;
    std::vector<std::int32_t> text;
};

class TextScanner {
public:
    // `code` holds four bytes of each text as one little-endian number, `offset` how far into the text they stand.
    TextScanner(std::vector<std::string> texts, std::vector<std::uint32_t> code, std::vector<std::uint32_t> offset,
                const ScanLimits& limits);

    // Looks for a text no more.
    void drop(std::size_t text);
    // Finds every text that begins in [start, stop); `line` is the number of the line at `start`.
    ScannedLines scan(std::string_view block, std::size_t start, std::size_t stop, std::int64_t line);

private:
    struct Hit {
        std::size_t begin;
        std::int32_t text;
        auto operator<=>(const Hit&) const = default;
    };

    void find(std::string_view block, std::size_t start, std::size_t stop, std::vector<Hit>& hits);
    void rebuild();

    std::vector<std::string> texts_;
    std::vector<std::uint32_t> code_, offset_;
    ScanLimits limits_;
    std::vector<std::size_t> count_;
    std::vector<char> dropped_, resting_;
    std::vector<std::int32_t> head_, next_;
    std::vector<std::uint8_t> all_, awake_;
    std::size_t num_steps_ = 0;
};

}  // namespace syncline
