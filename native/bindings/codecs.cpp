// The Python face of the codec kernels: sizes are checked here, then the GIL is released and nothing is allocated.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
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

codec::Quantiser quantiser(int bits, std::int64_t block, std::int64_t n, std::int64_t num_bytes) {
    require(bits == 8 || bits == 4, "bits must be 8 or 4");
    require(num_bytes == scale_bytes(n, block) + (n * bits + 7) / 8, "payload has the wrong length");
    return {bits, block};
}

bool block_encode(const Values& values, const Payload& payload, const Residual& residual, int bits, std::int64_t block,
                  int variant) {
    const auto& run = chosen(variant);
    const auto in = input(values, residual);
    const auto how = quantiser(bits, block, in.size, size_of(payload));
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
                  const Residual& residual, int bits, std::int64_t block, float before, float after, int variant) {
    const auto& run = chosen(variant);
    const std::int64_t n = size_of(own), num_bytes = scale_bytes(n, block) + (n * bits + 7) / 8;
    const auto how = quantiser(bits, block, n, num_bytes);
    const Reduce reduce(payloads, own, residual, payload, before, after, num_bytes);
    nb::gil_scoped_release release;
    return run.block_reduce(reduce.all, how);
}

void block_decode(const Bytes& payload, const Floats& out, int bits, std::int64_t block, bool add, float scale,
                  int variant) {
    const auto& run = chosen(variant);
    const auto how = quantiser(bits, block, size_of(out), size_of(payload));
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
          "residual"_a.noconvert().none(), "bits"_a, "block"_a, "variant"_a = -1,
          "Quantise by block to codes of 8 or 4 bits; return whether all was finite.");
    m.def("block_decode", &block_decode, "payload"_a.noconvert(), "out"_a.noconvert(), "bits"_a, "block"_a, "add"_a,
          "scale"_a, "variant"_a = -1, "Read what block_encode wrote.");
    m.def("block_reduce", &block_reduce, "payloads"_a.noconvert(), "own"_a.noconvert(), "payload"_a.noconvert().none(),
          "residual"_a.noconvert().none(), "bits"_a, "block"_a, "before"_a, "after"_a,
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
}
