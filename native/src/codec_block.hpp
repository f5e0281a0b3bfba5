// Whole numbers by block. A block is read twice: once for its largest magnitude, once (from cache) to be encoded.
#pragma once

#include "codec_bits.hpp"

namespace syncline::codec {
namespace {

constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds |x| < 2^22, ties to even
constexpr std::int64_t kPiece = 512;   // codes of fewer than 8 bits are made so many at a time, then packed

inline int levels_of(int bits) { return (1 << (bits - 1)) - 1; }

template <bool kResidual>
void codes_of(const float* __restrict values, float* __restrict residual, std::int64_t n, Scale scale,
              std::int8_t* __restrict codes) {
    for (std::int64_t i = 0; i < n; ++i) {
        const float a = input<kResidual>(values, residual, i);
        const float x = a * scale.inverse;
        const float q = (x + kRound) - kRound;
        codes[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(q));
        if (kResidual) residual[i] = a - q * scale.value;
    }
}

// Element i of a byte in its low bits first. A wider word holds the codes of one byte, so the loop is a plain map.
inline void pack4(const std::int8_t* codes, std::int64_t num_bytes, std::uint8_t* __restrict packed) {
    for (std::int64_t i = 0; i < num_bytes; ++i) {
        std::uint16_t pair;
        std::memcpy(&pair, codes + 2 * i, sizeof pair);
        packed[i] = static_cast<std::uint8_t>((pair & 0x0f) | ((pair >> 4) & 0xf0));
    }
}

template <bool kResidual>
bool block_encode_all(Input in, Quantiser how, std::uint8_t* payload, Span part) {
    const std::int64_t num_blocks = blocks_in(in.size, how.block);
    const float inverse_of_levels = 1.0f / static_cast<float>(levels_of(how.bits));
    const std::int64_t per_byte = 8 / how.bits;
    std::uint8_t* const codes = payload + scale_bytes(num_blocks);
    std::int8_t piece[kPiece];
    bool finite = true;
    for (std::int64_t start = part.from; start < part.to; start += how.block) {
        const std::int64_t n = least(how.block, in.size - start);
        const float* values = in.values + start;
        float* residual = kResidual ? in.residual + start : nullptr;
        const Scale scale = scale_of(top_bits<kResidual>(values, residual, n), inverse_of_levels);
        store_scale(payload, start / how.block, num_blocks, scale.value);
        std::uint8_t* const target = codes + start / per_byte;
        if (scale.poisoned) {
            finite = false;
            clear(target, (n + per_byte - 1) / per_byte);
            if (kResidual) heal(residual, n);
            continue;
        }
        if (how.bits == 8) {
            codes_of<kResidual>(values, residual, n, scale, reinterpret_cast<std::int8_t*>(target));
            continue;
        }
        for (std::int64_t at = 0; at < n; at += kPiece) {
            const std::int64_t m = least(kPiece, n - at);
            codes_of<kResidual>(values + at, kResidual ? residual + at : nullptr, m, scale, piece);
            for (std::int64_t i = m; i % per_byte; ++i) piece[i] = 0;
            const std::int64_t num_bytes = (m + per_byte - 1) / per_byte;
            pack4(piece, num_bytes, target + at / 2);
        }
    }
    return finite;
}

bool block_encode_span(Input in, Quantiser how, std::uint8_t* payload, Span part) {
    return in.residual ? block_encode_all<true>(in, how, payload, part) : block_encode_all<false>(in, how, payload, part);
}

bool block_encode(Input in, Quantiser how, std::uint8_t* payload) {
    return block_encode_span(in, how, payload, {0, in.size});
}

inline void unpack4(const std::uint8_t* packed, std::int64_t num_bytes, std::int8_t* __restrict codes) {
    for (std::int64_t i = 0; i < num_bytes; ++i) {
        const std::uint32_t byte = packed[i];
        const auto pair = static_cast<std::uint16_t>((byte & 0x0f) | ((byte & 0xf0) << 4));
        std::memcpy(codes + 2 * i, &pair, sizeof pair);
    }
    // Two's complement of 4 bits: flip the sign bit, then take it away.
    for (std::int64_t i = 0; i < 2 * num_bytes; ++i) codes[i] = static_cast<std::int8_t>((codes[i] ^ 8) - 8);
}

template <bool kAdd>
void block_decode_all(const std::uint8_t* payload, Quantiser how, Output out, Span part) {
    const std::int64_t num_blocks = blocks_in(out.size, how.block);
    const std::int64_t per_byte = 8 / how.bits;
    const std::uint8_t* const codes = payload + scale_bytes(num_blocks);
    std::int8_t piece[kPiece];
    for (std::int64_t start = part.from; start < part.to; start += how.block) {
        const float scale = load_scale(payload, start / how.block);
        const std::int64_t stop = least(out.size, start + how.block);
        for (std::int64_t at = start; at < stop; at += kPiece) {
            const std::int64_t m = least(kPiece, stop - at);
            const std::uint8_t* const source = codes + at / per_byte;
            const std::int8_t* code = piece;
            if (how.bits == 8) {
                code = reinterpret_cast<const std::int8_t*>(source);
            } else {
                unpack4(source, (m + 1) / 2, piece);
            }
            float* __restrict target = out.values + at;
            for (std::int64_t i = 0; i < m; ++i) {
                give<kAdd>(target, i, static_cast<float>(code[i]) * scale, out.scale);
            }
        }
    }
}

void block_decode_span(const std::uint8_t* payload, Quantiser how, Output out, Span part) {
    out.add ? block_decode_all<true>(payload, how, out, part) : block_decode_all<false>(payload, how, out, part);
}

void block_decode(const std::uint8_t* payload, Quantiser how, Output out) {
    block_decode_span(payload, how, out, {0, out.size});
}

bool block_reduce(const Reduction& all, Quantiser how) {
    return reduce_chunks(
        all, how.block,
        [how](Input in, std::uint8_t* payload, Span part) { return block_encode_span(in, how, payload, part); },
        [how](const std::uint8_t* payload, Output out, Span part) { block_decode_span(payload, how, out, part); });
}

}  // namespace
}  // namespace syncline::codec
