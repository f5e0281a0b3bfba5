// Codecs on the CPU: each kernel in three variants that give the same bits. docs/method/codecs.md has the layouts.
#pragma once

#include <cstdint>

namespace syncline::codec {

enum class Variant : int { portable = 0, avx2 = 1, avx512 = 2 };

// What is encoded: values, plus residual unless that is null. The residual then becomes what was not sent.
struct Input {
    const float* values;
    float* residual;
    std::int64_t size;
};

// Where decoded numbers go: out = scale * decoded, or out += scale * decoded.
struct Output {
    float* values;
    std::int64_t size;
    bool add;
    float scale;
};

// Codes of 8 or 4 bits; a block is a power of two of at least 32 elements and shares a scale.
struct Quantiser {
    int bits;
    std::int64_t block;
    bool stochastic;
    std::uint32_t key;
};

// Eight-bit floats by block.
struct Float8 {
    int mantissa;              // bits
    int bias;                  // of the exponent
    int largest_code;          // finite
    float inverse_of_largest;  // 1 / the value of that code
    std::int64_t block;
};

// Payloads of peers that are added to the own values, and the sum encoded: all in one pass over blocks that stay in
// cache. own = (own + what each payload says) * before; with a payload to write, that is encoded (with the residual)
// and own becomes `after` times what it decodes to.
struct Reduction {
    const std::uint8_t* const* payloads;
    std::int64_t num_payloads;
    float* own;
    float* residual;  // null: none is kept
    std::int64_t size;
    std::uint8_t* payload;  // null: the sum is not encoded
    float before;
    float after;
};

enum class Short : int { fp16 = 0, bf16 = 1, fp32 = 2 };

// Which lines of 16 elements are looked at to find a threshold; stride 1 looks at every element and is exact.
struct Sample {
    std::int64_t wanted;  // elements that should reach the threshold
    std::int64_t stride;
    std::int64_t offset;
    std::uint32_t* histogram;  // kHistogram entries of scratch
};
constexpr std::int64_t kHistogram = 1 << 15;

// An element is kept when its magnitude is above this, or is one of the first `ties` that equal it.
struct Threshold {
    std::uint32_t bits;
    std::int64_t ties;
};

// Kept elements: `room` indices (4 bytes each) and values (4 bytes each), at any address.
struct Places {
    std::uint8_t* index;
    std::uint8_t* value;
    std::int64_t room;
};
struct Kept {
    std::int64_t count;
    bool poisoned;  // a NaN or Inf was there; nothing is kept then
};

// The kernels trust their arguments: sizes are checked by the caller (native/bindings/codecs.cpp).
// What encodes or reduces returns whether everything was finite: every value, and every value plus residual.
struct Kernels {
    bool (*block_encode)(Input, Quantiser, std::uint8_t* payload);
    void (*block_decode)(const std::uint8_t* payload, Quantiser, Output);
    bool (*block_reduce)(const Reduction&, Quantiser);
    bool (*sign_encode)(Input, std::int64_t block, std::uint8_t* payload);
    void (*sign_decode)(const std::uint8_t* payload, std::int64_t block, Output);
    bool (*sign_reduce)(const Reduction&, std::int64_t block);
    bool (*cast_encode)(Input, Short, std::uint8_t* payload);
    void (*cast_decode)(const std::uint8_t* payload, Short, Output);
    bool (*cast_reduce)(const Reduction&, Short);
    bool (*fp8_encode)(Input, const Float8&, std::uint8_t* payload);
    void (*fp8_decode)(const std::uint8_t* payload, const Float8&, Output);
    bool (*fp8_reduce)(const Reduction&, const Float8&);
    Threshold (*threshold)(Input, Sample);
    Kept (*select)(Input, Threshold, Places);
    bool (*is_finite)(const float* values, std::int64_t size);
};

// Whether this machine can run a variant; portable always can.
bool supported(Variant variant);
Variant best();
const Kernels& kernels(Variant variant);  // throws std::invalid_argument when not supported

// Write kept values to their places. False, with nothing written, when an index lies outside.
bool scatter(const std::uint8_t* index, const std::uint8_t* value, std::int64_t count, Output out);

}  // namespace syncline::codec
