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
    bool (*is_finite)(const float* values, std::int64_t size);
};

// Whether this machine can run a variant; portable always can.
bool supported(Variant variant);
Variant best();
const Kernels& kernels(Variant variant);  // throws std::invalid_argument when not supported

}  // namespace syncline::codec
