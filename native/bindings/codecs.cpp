// The Python face of the codec kernels: sizes are checked here, then the GIL is released and nothing is allocated.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "syncline/codec.hpp"

namespace nb = nanobind;
namespace codec = syncline::codec;
using namespace nb::literals;

namespace {

template <typename T>
using Inout = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Values = In<float>;
using Bytes = In<std::uint8_t>;
using Floats = Inout<float>;
using Payload = Inout<std::uint8_t>;
using Residual = std::optional<Floats>;

void require(bool ok, const char* text) {
    if (!ok) throw std::invalid_argument(text);
}

const codec::Kernels& chosen(int variant) {
    static const codec::Variant fastest = codec::best();
    require(variant >= -1 && variant <= 2, "variant is -1 (the best here), 0 (portable), 1 (AVX2) or 2 (AVX-512)");
    return codec::kernels(variant < 0 ? fastest : static_cast<codec::Variant>(variant));
}

std::int64_t size_of(const auto& array) { return static_cast<std::int64_t>(array.size()); }

codec::Input input(const Values& values, const Residual& residual) {
    require(!residual || residual->size() == values.size(), "residual and values differ in length");
    return {values.data(), residual ? residual->data() : nullptr, size_of(values)};
}

codec::Output output(const Floats& out, bool add, float scale) { return {out.data(), size_of(out), add, scale}; }

std::int64_t num_blocks(std::int64_t n, std::int64_t block) {
    require(block >= 32 && block <= 65536 && (block & (block - 1)) == 0, "block must be a power of two, 32 to 65536");
    return (n + block - 1) / block;
}

std::int64_t scale_bytes(std::int64_t n, std::int64_t block) { return 4 * ((num_blocks(n, block) + 1) / 2); }

codec::Quantiser quantiser(int bits, std::int64_t block, bool stochastic, std::uint32_t key, std::int64_t n,
                           std::int64_t num_bytes) {
    require(bits == 8 || bits == 4, "bits must be 8 or 4");
    require(num_bytes == scale_bytes(n, block) + (n * bits + 7) / 8, "payload has the wrong length");
    return {bits, block, stochastic, key};
}

bool block_encode(const Values& values, const Payload& payload, const Residual& residual, int bits, std::int64_t block,
                  bool stochastic, std::uint32_t key, int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    const auto how = quantiser(bits, block, stochastic, key, in.size, size_of(payload));
    nb::gil_scoped_release release;
    return run.block_encode(in, how, payload.data());
}

// What a reduction is made of, checked but for the lengths that depend on the codec: `num_bytes` is that of a payload.
struct Reduce {
    std::vector<const std::uint8_t*> sources;
    codec::Reduction all;

    Reduce(const std::vector<Bytes>& payloads, const Floats& own, const Residual& residual,
           const std::optional<Payload>& payload, float before, float after, std::int64_t num_bytes) {
        require(!residual || residual->size() == own.size(), "residual and values differ in length");
        require(!payload || size_of(*payload) == num_bytes, "payload has the wrong length");
        for (const Bytes& source : payloads) {
            require(size_of(source) == num_bytes, "payload has the wrong length");
            sources.push_back(source.data());
        }
        all = {sources.data(),  static_cast<std::int64_t>(sources.size()), own.data(), residual ? residual->data() : nullptr,
               size_of(own),    payload ? payload->data() : nullptr,       before,     after};
    }
};

bool block_reduce(const std::vector<Bytes>& payloads, const Floats& own, const std::optional<Payload>& payload,
                  const Residual& residual, int bits, std::int64_t block, bool stochastic, std::uint32_t key,
                  float before, float after, int variant) {
    const auto& run = chosen(variant);
    const std::int64_t n = size_of(own), num_bytes = scale_bytes(n, block) + (n * bits + 7) / 8;
    const auto how = quantiser(bits, block, stochastic, key, n, num_bytes);
    const Reduce reduce(payloads, own, residual, payload, before, after, num_bytes);
    nb::gil_scoped_release release;
    return run.block_reduce(reduce.all, how);
}

void block_decode(const Bytes& payload, const Floats& out, int bits, std::int64_t block, bool add, float scale,
                  int variant) {
    const auto& run = chosen(variant);
    const auto how = quantiser(bits, block, false, 0, size_of(out), size_of(payload));
    nb::gil_scoped_release release;
    run.block_decode(payload.data(), how, output(out, add, scale));
}

void check_sign(std::int64_t n, std::int64_t block, std::int64_t num_bytes) {
    require(num_bytes == 4 * num_blocks(n, block) + (n + 7) / 8, "payload has the wrong length");
}

bool sign_encode(const Values& values, const Payload& payload, const Residual& residual, std::int64_t block,
                 int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    check_sign(in.size, block, size_of(payload));
    nb::gil_scoped_release release;
    return run.sign_encode(in, block, payload.data());
}

void sign_decode(const Bytes& payload, const Floats& out, std::int64_t block, bool add, float scale, int variant) {
    const auto& run = chosen(variant);
    check_sign(size_of(out), block, size_of(payload));
    nb::gil_scoped_release release;
    run.sign_decode(payload.data(), block, output(out, add, scale));
}

bool sign_reduce(const std::vector<Bytes>& payloads, const Floats& own, const std::optional<Payload>& payload,
                 const Residual& residual, std::int64_t block, float before, float after, int variant) {
    const auto& run = chosen(variant);
    const std::int64_t n = size_of(own);
    const Reduce reduce(payloads, own, residual, payload, before, after, 4 * num_blocks(n, block) + (n + 7) / 8);
    nb::gil_scoped_release release;
    return run.sign_reduce(reduce.all, block);
}

codec::Short kind_of(const std::string& name, std::int64_t n, std::int64_t num_bytes) {
    require(name == "fp16" || name == "bf16" || name == "fp32", "kind is fp16, bf16 or fp32");
    require(num_bytes == n * (name == "fp32" ? 4 : 2), "payload has the wrong length");
    return name == "fp16" ? codec::Short::fp16 : name == "bf16" ? codec::Short::bf16 : codec::Short::fp32;
}

bool cast_encode(const Values& values, const Payload& payload, const Residual& residual, const std::string& kind,
                 int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    const auto how = kind_of(kind, in.size, size_of(payload));
    nb::gil_scoped_release release;
    return run.cast_encode(in, how, payload.data());
}

void cast_decode(const Bytes& payload, const Floats& out, const std::string& kind, bool add, float scale, int variant) {
    const auto& run = chosen(variant);
    const auto how = kind_of(kind, size_of(out), size_of(payload));
    nb::gil_scoped_release release;
    run.cast_decode(payload.data(), how, output(out, add, scale));
}

bool cast_reduce(const std::vector<Bytes>& payloads, const Floats& own, const std::optional<Payload>& payload,
                 const Residual& residual, const std::string& kind, float before, float after, int variant) {
    const auto& run = chosen(variant);
    const std::int64_t n = size_of(own), num_bytes = n * (kind == "fp32" ? 4 : 2);
    const auto how = kind_of(kind, n, num_bytes);
    const Reduce reduce(payloads, own, residual, payload, before, after, num_bytes);
    nb::gil_scoped_release release;
    return run.cast_reduce(reduce.all, how);
}

codec::Float8 float8(const std::string& format, std::int64_t block, std::int64_t n, std::int64_t num_bytes) {
    require(format == "e4m3" || format == "e5m2", "format is e4m3 or e5m2");
    require(num_bytes == scale_bytes(n, block) + n, "payload has the wrong length");
    if (format == "e4m3") return {3, 7, 0x7e, 1.0f / 448.0f, block};
    return {2, 15, 0x7b, 1.0f / 57344.0f, block};
}

bool fp8_encode(const Values& values, const Payload& payload, const Residual& residual, const std::string& format,
                std::int64_t block, int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    const auto how = float8(format, block, in.size, size_of(payload));
    nb::gil_scoped_release release;
    return run.fp8_encode(in, how, payload.data());
}

void fp8_decode(const Bytes& payload, const Floats& out, const std::string& format, std::int64_t block, bool add,
                float scale, int variant) {
    const auto& run = chosen(variant);
    const auto how = float8(format, block, size_of(out), size_of(payload));
    nb::gil_scoped_release release;
    run.fp8_decode(payload.data(), how, output(out, add, scale));
}

bool fp8_reduce(const std::vector<Bytes>& payloads, const Floats& own, const std::optional<Payload>& payload,
                const Residual& residual, const std::string& format, std::int64_t block, float before, float after,
                int variant) {
    const auto& run = chosen(variant);
    const std::int64_t n = size_of(own), num_bytes = scale_bytes(n, block) + n;
    const auto how = float8(format, block, n, num_bytes);
    const Reduce reduce(payloads, own, residual, payload, before, after, num_bytes);
    nb::gil_scoped_release release;
    return run.fp8_reduce(reduce.all, how);
}

std::pair<std::uint32_t, std::int64_t> threshold(const Values& values, const Residual& residual, std::int64_t wanted,
                                                 std::int64_t stride, std::int64_t offset,
                                                 const Inout<std::uint32_t>& histogram, int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    require(wanted >= 1 && stride >= 1 && offset >= 0 && offset < stride, "wanted, stride or offset out of range");
    require(size_of(histogram) >= codec::kHistogram, "the histogram needs 32768 entries");
    nb::gil_scoped_release release;
    const auto found = run.threshold(in, {wanted, stride, offset, histogram.data()});
    return {found.bits, found.ties};
}

std::pair<std::int64_t, bool> take(const Values& values, const Residual& residual, std::uint32_t threshold_bits,
                                   std::int64_t ties, const Payload& index, const Payload& value, int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    require(in.size <= INT32_MAX, "sparse codecs take at most 2^31 - 1 elements");
    require(threshold_bits >= 1 && threshold_bits <= 0x7f800000u, "threshold must be the bits of a magnitude above 0");
    require(index.size() == value.size() && index.size() % 4 == 0, "index and value need 4 bytes for each place");
    nb::gil_scoped_release release;
    const auto kept = run.select(in, {threshold_bits, ties}, {index.data(), value.data(), size_of(index) / 4});
    return {kept.count, kept.poisoned};
}

void scatter(const Bytes& index, const Bytes& value, std::int64_t count, const Floats& out, bool add, float scale) {
    require(index.size() == value.size() && count >= 0 && count * 4 <= size_of(index), "count is beyond the places");
    bool inside;
    {
        nb::gil_scoped_release release;
        inside = codec::scatter(index.data(), value.data(), count, output(out, add, scale));
    }
    require(inside, "an index lies outside the array");
}

std::vector<int> variants() {
    std::vector<int> found;
    for (const int number : {0, 1, 2}) {
        if (codec::supported(static_cast<codec::Variant>(number))) found.push_back(number);
    }
    return found;
}

}  // namespace

NB_MODULE(codecs, m) {
    m.doc() = "Native codec kernels; use syncline.codec instead. Nothing is converted on the way in.";
    m.def("variants", &variants, "Return the variants this machine runs: 0 portable, 1 AVX2, 2 AVX-512.");
    m.def("block_encode", &block_encode, "values"_a.noconvert(), "payload"_a.noconvert(),
          "residual"_a.noconvert().none(), "bits"_a, "block"_a, "stochastic"_a, "key"_a, "variant"_a = -1,
          "Quantise by block to codes of 8 or 4 bits; return whether all was finite.");
    m.def("block_decode", &block_decode, "payload"_a.noconvert(), "out"_a.noconvert(), "bits"_a, "block"_a, "add"_a,
          "scale"_a, "variant"_a = -1, "Read what block_encode wrote.");
    m.def("block_reduce", &block_reduce, "payloads"_a.noconvert(), "own"_a.noconvert(), "payload"_a.noconvert().none(),
          "residual"_a.noconvert().none(), "bits"_a, "block"_a, "stochastic"_a, "key"_a, "before"_a, "after"_a,
          "variant"_a = -1, "Add payloads to own and encode the sum.");
    m.def("sign_encode", &sign_encode, "values"_a.noconvert(), "payload"_a.noconvert(),
          "residual"_a.noconvert().none(), "block"_a, "variant"_a = -1, "Keep signs and mean magnitudes; return whether all was finite.");
    m.def("sign_decode", &sign_decode, "payload"_a.noconvert(), "out"_a.noconvert(), "block"_a, "add"_a, "scale"_a,
          "variant"_a = -1, "Read what sign_encode wrote.");
    m.def("sign_reduce", &sign_reduce, "payloads"_a.noconvert(), "own"_a.noconvert(), "payload"_a.noconvert().none(),
          "residual"_a.noconvert().none(), "block"_a, "before"_a, "after"_a,
          "variant"_a = -1, "Add payloads to own and encode the sum.");
    m.def("cast_encode", &cast_encode, "values"_a.noconvert(), "payload"_a.noconvert(),
          "residual"_a.noconvert().none(), "kind"_a, "variant"_a = -1, "Round to fp16 or bf16, or copy fp32; return whether all was finite.");
    m.def("cast_decode", &cast_decode, "payload"_a.noconvert(), "out"_a.noconvert(), "kind"_a, "add"_a, "scale"_a,
          "variant"_a = -1, "Read what cast_encode wrote.");
    m.def("cast_reduce", &cast_reduce, "payloads"_a.noconvert(), "own"_a.noconvert(), "payload"_a.noconvert().none(),
          "residual"_a.noconvert().none(), "kind"_a, "before"_a, "after"_a,
          "variant"_a = -1, "Add payloads to own and encode the sum.");
    m.def("fp8_encode", &fp8_encode, "values"_a.noconvert(), "payload"_a.noconvert(), "residual"_a.noconvert().none(),
          "format"_a, "block"_a, "variant"_a = -1, "Scale by block and round to e4m3 or e5m2; return whether all was finite.");
    m.def("fp8_decode", &fp8_decode, "payload"_a.noconvert(), "out"_a.noconvert(), "format"_a, "block"_a, "add"_a,
          "scale"_a, "variant"_a = -1, "Read what fp8_encode wrote.");
    m.def("fp8_reduce", &fp8_reduce, "payloads"_a.noconvert(), "own"_a.noconvert(), "payload"_a.noconvert().none(),
          "residual"_a.noconvert().none(), "format"_a, "block"_a, "before"_a, "after"_a,
          "variant"_a = -1, "Add payloads to own and encode the sum.");
    m.def("threshold", &threshold, "values"_a.noconvert(), "residual"_a.noconvert().none(), "wanted"_a,
          "stride"_a, "offset"_a, "histogram"_a.noconvert(), "variant"_a = -1,
          "Return (bits of a magnitude that about `wanted` elements reach, how many that equal it to keep).");
    m.def("select", &take, "values"_a.noconvert(), "residual"_a.noconvert().none(), "threshold_bits"_a,
          "ties"_a, "index"_a.noconvert(), "value"_a.noconvert(), "variant"_a = -1,
          "Keep what reaches the threshold; return (count, poisoned).");
    m.def("scatter", &scatter, "index"_a.noconvert(), "value"_a.noconvert(), "count"_a, "out"_a.noconvert(), "add"_a,
          "scale"_a, "Put kept values at their places; ValueError, and nothing written, when one lies outside.");
}
