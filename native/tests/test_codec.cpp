// The codec kernels: cases small enough to check by hand, and every variant against the portable one in memory of exactly
// the size it needs, so that the sanitizers see a step outside.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "syncline/codec.hpp"

namespace {

using namespace syncline::codec;
using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<Variant> variants() {
    std::vector<Variant> found;
    for (const auto variant : {Variant::portable, Variant::avx2, Variant::avx512}) {
        if (supported(variant)) found.push_back(variant);
    }
    return found;
}

// A scale is the upper half of a float.
float scale_at(const Bytes& payload, std::size_t place) {
    std::uint16_t half;
    std::memcpy(&half, payload.data() + 2 * place, sizeof half);
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

float float_at(const Bytes& payload, std::size_t place) {
    float x;
    std::memcpy(&x, payload.data() + 4 * place, sizeof x);
    return x;
}

bool same(const Floats& a, const Floats& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

Floats numbers(std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Floats made(static_cast<std::size_t>(n));
    for (auto& x : made) x = normal(random);
    return made;
}

Input input(const Floats& values, Floats& residual) {
    return {values.data(), residual.empty() && !values.empty() ? nullptr : residual.data(),
            static_cast<std::int64_t>(values.size())};
}

void blocks_by_hand() {
    const Floats values{127.0f, -63.5f, 0.5f, 1.5f, -127.0f};
    for (const auto variant : variants()) {
        Floats residual(5);
        Bytes payload(9);
        kernels(variant).block_encode(input(values, residual), {8, 256}, payload.data());
        CHECK(scale_at(payload, 0) == 1.0f);
        const Bytes codes(payload.begin() + 4, payload.end());
        CHECK((codes == Bytes{127, 256 - 64, 0, 2, 256 - 127}));  // ties go to even
        CHECK(same(residual, {0.0f, 0.5f, 0.5f, -0.5f, 0.0f}));
        Floats out{1, 1, 1, 1, 1};
        kernels(variant).block_decode(payload.data(), {8, 256}, {out.data(), 5, true, 0.5f});
        CHECK(same(out, {64.5f, -31.0f, 1.0f, 2.0f, -62.5f}));
    }
}

void four_bits_by_hand() {
    const Floats values{7.0f, -1.0f, -7.0f};
    for (const auto variant : variants()) {
        Floats none;
        Bytes payload(6);
        kernels(variant).block_encode(input(values, none), {4, 32}, payload.data());
        CHECK(payload[4] == 0xf7);  // 7, then -1 in the high bits
        CHECK(payload[5] == 0x09);  // -7, and nothing
    }
}

void signs_by_hand() {
    const Floats values{1.0f, -3.0f, -0.0f, 4.0f};
    for (const auto variant : variants()) {
        Floats residual{0.0f, 0.0f, -0.0f, 0.0f};
        Bytes payload(5);
        kernels(variant).sign_encode(input(values, residual), 32, payload.data());
        CHECK(float_at(payload, 0) == 2.0f);
        CHECK(payload[4] == 0b0110);
        CHECK(same(residual, {-1.0f, -1.0f, 2.0f, 2.0f}));
        Floats out(4);
        kernels(variant).sign_decode(payload.data(), 32, {out.data(), 4, false, 1.0f});
        CHECK(same(out, {2.0f, -2.0f, -2.0f, 2.0f}));
    }
}

void not_finite_is_seen() {
    for (const auto variant : variants()) {
        Floats values = numbers(40, 1), residual(40, 0.25f);
        values[3] = kNan;
        residual[5] = kNan;
        Bytes payload(2 * 2 + 40);
        kernels(variant).block_encode(input(values, residual), {8, 32}, payload.data());
        CHECK(std::isnan(scale_at(payload, 0)));
        CHECK(std::isfinite(scale_at(payload, 1)));
        CHECK(residual[3] == 0.25f);
        CHECK(residual[5] == 0.0f);
    }
}

// One kernel in every variant: payload, residual and what decodes must be those of the portable one.
template <typename Encode, typename Decode>
void agree(std::int64_t n, std::int64_t num_bytes, const Encode& encode, const Decode& decode) {
    for (const bool with_residual : {false, true}) {
        Bytes first_payload;
        Floats first_residual, first_out;
        for (const auto variant : variants()) {
            const Floats values = numbers(n, 7);
            Floats residual = with_residual ? numbers(n, 8) : Floats{}, out = numbers(n, 9);
            Bytes payload(static_cast<std::size_t>(num_bytes));
            encode(kernels(variant), input(values, residual), payload);
            decode(kernels(variant), payload, Output{out.data(), n, with_residual, 0.7f});
            if (variant == Variant::portable) {
                first_payload = payload;
                first_residual = residual;
                first_out = out;
            }
            CHECK(payload == first_payload);
            CHECK(same(residual, first_residual));
            CHECK(same(out, first_out));
        }
    }
}

void variants_agree(std::int64_t n) {
    const std::int64_t num_blocks = (n + 63) / 64, scale_bytes = 4 * ((num_blocks + 1) / 2);
    for (const int bits : {8, 4}) {
        const Quantiser how{bits, 64};
        agree(
            n, scale_bytes + (n * bits + 7) / 8,
            [&](const Kernels& k, Input in, Bytes& to) { k.block_encode(in, how, to.data()); },
            [&](const Kernels& k, const Bytes& from, Output out) { k.block_decode(from.data(), how, out); });
    }
    agree(
        n, 4 * num_blocks + (n + 7) / 8,
        [](const Kernels& k, Input in, Bytes& to) { k.sign_encode(in, 64, to.data()); },
        [](const Kernels& k, const Bytes& from, Output out) { k.sign_decode(from.data(), 64, out); });
    for (const auto kind : {Short::fp16, Short::bf16, Short::fp32}) {
        agree(
            n, n * (kind == Short::fp32 ? 4 : 2),
            [&](const Kernels& k, Input in, Bytes& to) { k.cast_encode(in, kind, to.data()); },
            [&](const Kernels& k, const Bytes& from, Output out) { k.cast_decode(from.data(), kind, out); });
    }
}

}  // namespace

SUITE(codec) {
    CHECK(supported(Variant::portable));
    CHECK(supported(best()));
    CHECK(!supported(static_cast<Variant>(9)));
    CHECK(check::thrown<std::invalid_argument>([] { kernels(static_cast<Variant>(9)); }) != "");
    blocks_by_hand();
    four_bits_by_hand();
    signs_by_hand();
    not_finite_is_seen();
    for (const std::int64_t n : {0, 1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 130, 1000, 4099}) variants_agree(n);
}
