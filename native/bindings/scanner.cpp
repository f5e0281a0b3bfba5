// The Python face of the search for many texts.
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/text_scanner.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using syncline::TextScanner;

using Lines = std::tuple<std::int64_t, Out<std::int64_t>, Out<std::int64_t>, Out<std::int64_t>, Out<std::int64_t>,
                         Out<std::int32_t>>;

void make(TextScanner* self, const nb::list& texts, const In<std::uint32_t>& code, const In<std::uint32_t>& offset,
          std::size_t step, std::size_t rest, std::size_t rest_every, std::size_t before, std::size_t max_line) {
    std::vector<std::string> plain;
    plain.reserve(texts.size());
    for (nb::handle text : texts) {
        const auto bytes = nb::cast<nb::bytes>(text);
        plain.emplace_back(bytes.c_str(), bytes.size());
    }
    new (self) TextScanner(std::move(plain), {code.data(), code.data() + code.size()},
                           {offset.data(), offset.data() + offset.size()}, {step, rest, rest_every, before, max_line});
}

Lines scan(TextScanner& scanner, const nb::bytes& block, std::size_t start, std::size_t stop, std::int64_t line) {
    syncline::ScannedLines lines;
    const std::string_view view(block.c_str(), block.size());
    {
        nb::gil_scoped_release release;
        lines = scanner.scan(view, start, stop, line);
    }
    return {lines.line, give(std::move(lines.number)), give(std::move(lines.begin)), give(std::move(lines.end)),
            give(std::move(lines.last)), give(std::move(lines.text))};
}

}  // namespace

NB_MODULE(scanner, m) {
    m.doc() = "The search of syncline.diagnose for the texts of its rules; use syncline.diagnose.scan instead.";
    nb::class_<TextScanner>(m, "TextScanner", "Looks for many texts at once in one stream of blocks.")
        .def("__init__", &make, "texts"_a, "code"_a.noconvert(), "offset"_a.noconvert(), "step"_a, "rest"_a,
             "rest_every"_a, "before"_a, "max_line"_a)
        .def("drop", &TextScanner::drop, "text"_a, "Look for a text no more.")
        .def("scan", &scan, "block"_a, "start"_a, "stop"_a, "line"_a,
             "Return (line after it, then of each line with a text: number, begin, end, where its texts end; all texts).");
}
