#include "coder.hpp"

namespace syncline::wire {
namespace {

const codec::Kernels& kernels() {
    static const codec::Kernels& best = codec::kernels(codec::best());
    return best;
}

codec::Quantiser keyed(codec::Quantiser quantiser, std::uint32_t key) {
    quantiser.key = key;
    return quantiser;
}

}  // namespace

bool encode(const Coder& coder, codec::Input in, std::uint32_t key, std::uint8_t* payload) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_encode(in, keyed(coder.quantiser, key), payload);
        case Coder::Family::sign: return kernels().sign_encode(in, coder.block, payload);
        case Coder::Family::fp8: return kernels().fp8_encode(in, coder.float8, payload);
        default: return kernels().cast_encode(in, coder.cast, payload);
    }
}

void decode(const Coder& coder, const std::uint8_t* payload, codec::Output out) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_decode(payload, coder.quantiser, out);
        case Coder::Family::sign: return kernels().sign_decode(payload, coder.block, out);
        case Coder::Family::fp8: return kernels().fp8_decode(payload, coder.float8, out);
        default: return kernels().cast_decode(payload, coder.cast, out);
    }
}

bool reduce(const Coder& coder, const codec::Reduction& all, std::uint32_t key) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_reduce(all, keyed(coder.quantiser, key));
        case Coder::Family::sign: return kernels().sign_reduce(all, coder.block);
        case Coder::Family::fp8: return kernels().fp8_reduce(all, coder.float8);
        default: return kernels().cast_reduce(all, coder.cast);
    }
}

bool is_finite(const float* values, std::int64_t size) { return kernels().is_finite(values, size); }

bool is_plain(const Coder& coder) {
    return coder.family == Coder::Family::cast && coder.cast == codec::Short::fp32;
}

}  // namespace syncline::wire
