#include "syncline/text_scanner.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace syncline {

namespace {

constexpr unsigned kFlagBits = 17;    // 16 KiB of flags
constexpr unsigned kBucketBits = 13;  // where the texts of a code are listed
constexpr std::uint32_t kSpread = 0x9E3779B1U;

std::uint32_t flag_of(std::uint32_t code) { return (code * kSpread) >> (32 - kFlagBits); }
std::uint32_t bucket_of(std::uint32_t code) { return (code * kSpread) >> (32 - kBucketBits); }
bool is_set(const std::uint8_t* flags, std::uint32_t flag) { return (flags[flag >> 3] >> (flag & 7) & 1) != 0; }

template <typename Word>
Word load(const char* at) {
    Word word;
    std::memcpy(&word, at, sizeof word);
    if constexpr (std::endian::native == std::endian::big) {
        if constexpr (sizeof word == 8) word = __builtin_bswap64(word);
        else word = __builtin_bswap32(word);
    }
    return word;
}

std::int64_t count_newlines(const char* from, const char* to) {
    std::int64_t num = 0;
    while (from < to) {
        const void* found = std::memchr(from, '\n', static_cast<std::size_t>(to - from));
        if (found == nullptr) break;
        ++num;
        from = static_cast<const char*>(found) + 1;
    }
    return num;
}

// Calls `seen(position, code)` wherever a flag is set in [low, high); four bytes can be read at each position.
template <typename Seen>
void each_flagged(const char* data, std::size_t low, std::size_t high, const std::uint8_t* flags, Seen seen) {
    const auto look = [&](std::size_t at, std::uint32_t code) {
        if (is_set(flags, flag_of(code))) seen(at, code);
    };
    std::size_t i = low;
    for (; i + 5 <= high; i += 4) {  // eight bytes hold the fours of five positions; the last is the next turn's first
        const auto word = load<std::uint64_t>(data + i);
        const auto a = static_cast<std::uint32_t>(word), b = static_cast<std::uint32_t>(word >> 8);
        const auto c = static_cast<std::uint32_t>(word >> 16), d = static_cast<std::uint32_t>(word >> 24);
        const bool any = is_set(flags, flag_of(a)) | is_set(flags, flag_of(b)) | is_set(flags, flag_of(c)) |
                         is_set(flags, flag_of(d));
        if (!any) continue;
        look(i, a);
        look(i + 1, b);
        look(i + 2, c);
        look(i + 3, d);
    }
    for (; i < high; ++i) look(i, load<std::uint32_t>(data + i));
}

}  // namespace

TextScanner::TextScanner(std::vector<std::string> texts, std::vector<std::uint32_t> code,
                         std::vector<std::uint32_t> offset, const ScanLimits& limits)
    : texts_(std::move(texts)),
      code_(std::move(code)),
      offset_(std::move(offset)),
      limits_(limits),
      count_(texts_.size()),
      dropped_(texts_.size()),
      resting_(texts_.size()) {
    if (code_.size() != texts_.size() || offset_.size() != texts_.size()) {
        throw std::invalid_argument("each text has one code and one offset");
    }
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        if (offset_[i] + std::size_t{4} > texts_[i].size() || load<std::uint32_t>(&texts_[i][offset_[i]]) != code_[i]) {
            throw std::invalid_argument("a code is not four bytes of its text");
        }
    }
    if (limits_.step == 0 || limits_.rest_every == 0) throw std::invalid_argument("a step is at least one byte");
    rebuild();
}

void TextScanner::rebuild() {
    head_.assign(std::size_t{1} << kBucketBits, -1);
    next_.assign(texts_.size(), -1);
    all_.assign((std::size_t{1} << kFlagBits) / 8, 0);
    awake_ = all_;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        if (dropped_[i]) continue;
        next_[i] = std::exchange(head_[bucket_of(code_[i])], static_cast<std::int32_t>(i));
        const auto flag = flag_of(code_[i]);
        const auto bit = static_cast<std::uint8_t>(1U << (flag & 7));
        all_[flag >> 3] = static_cast<std::uint8_t>(all_[flag >> 3] | bit);
        if (!resting_[i]) awake_[flag >> 3] = static_cast<std::uint8_t>(awake_[flag >> 3] | bit);
    }
}

void TextScanner::drop(std::size_t text) {
    if (text >= texts_.size() || dropped_[text]) return;
    dropped_[text] = 1;
    rebuild();
}

void TextScanner::find(std::string_view block, std::size_t start, std::size_t stop, std::vector<Hit>& hits) {
    for (std::size_t base = 0; base < block.size(); base += limits_.step) {
        const bool every = num_steps_++ % limits_.rest_every == 0;
        bool tired = false;
        const auto seen = [&](std::size_t at, std::uint32_t code) {
            for (std::int32_t i = head_[bucket_of(code)]; i >= 0; i = next_[static_cast<std::size_t>(i)]) {
                const auto k = static_cast<std::size_t>(i);
                if (code_[k] != code || (!every && resting_[k]) || at < offset_[k]) continue;
                const std::size_t begin = at - offset_[k];
                if (begin < start || begin >= stop || block.substr(begin, texts_[k].size()) != texts_[k]) continue;
                hits.push_back({begin, i});
                tired |= ++count_[k] == limits_.rest;
            }
        };
        const std::size_t high = std::min(base + limits_.step, block.size() < 4 ? 0 : block.size() - 3);
        if (base < high) each_flagged(block.data(), base, high, (every ? all_ : awake_).data(), seen);
        if (tired) {  // a text floods this stream
            for (std::size_t i = 0; i < count_.size(); ++i) resting_[i] = count_[i] >= limits_.rest;
            rebuild();
        }
    }
    std::sort(hits.begin(), hits.end());
}

ScannedLines TextScanner::scan(std::string_view block, std::size_t start, std::size_t stop, std::int64_t line) {
    stop = std::min(stop, block.size());
    start = std::min(start, stop);
    std::vector<Hit> hits;
    find(block, start, stop, hits);
    ScannedLines lines;
    const char* data = block.data();
    std::size_t counted = start;
    for (std::size_t i = 0; i < hits.size();) {
        const std::size_t position = hits[i].begin;
        const std::size_t low = position > limits_.before ? position - limits_.before : 0;
        std::size_t begin = position;
        while (begin > low && data[begin - 1] != '\n') --begin;
        std::size_t end = std::min(block.size(), begin + limits_.max_line);
        if (end > position) {
            const void* newline = std::memchr(data + position, '\n', end - position);
            if (newline != nullptr) end = static_cast<std::size_t>(static_cast<const char*>(newline) - data);
        }
        const std::size_t limit = std::max(end, position + 1);
        const std::size_t first = lines.text.size();
        for (; i < hits.size() && hits[i].begin < limit; ++i) {
            const auto known = lines.text.begin() + static_cast<std::ptrdiff_t>(first);
            if (std::find(known, lines.text.end(), hits[i].text) == lines.text.end()) lines.text.push_back(hits[i].text);
        }
        line += count_newlines(data + counted, data + position);
        counted = position;
        lines.number.push_back(line);
        lines.begin.push_back(static_cast<std::int64_t>(begin));
        lines.end.push_back(static_cast<std::int64_t>(end));
        lines.last.push_back(static_cast<std::int64_t>(lines.text.size()));
    }
    lines.line = line + count_newlines(data + counted, data + stop);
    return lines;
}

}  // namespace syncline
