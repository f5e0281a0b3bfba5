#include "coder.hpp"

namespace syncline::wire {
namespace {

const codec::Kernels& kernels() {
    static const codec::Kernels& best = codec::kernels(codec::best());
    return best;
}

}  // namespace

bool encode(const Coder& coder, codec::Input in, std::uint8_t* payload) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_encode(in, coder.quantiser, payload);
        case Coder::Family::sign: return kernels().sign_encode(in, coder.block, payload);
        default: return kernels().cast_encode(in, coder.cast, payload);
    }
}

void decode(const Coder& coder, const std::uint8_t* payload, codec::Output out) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_decode(payload, coder.quantiser, out);
        case Coder::Family::sign: return kernels().sign_decode(payload, coder.block, out);
        default: return kernels().cast_decode(payload, coder.cast, out);
    }
}

bool reduce(const Coder& coder, const codec::Reduction& all) {
    switch (coder.family) {
        case Coder::Family::block: return kernels().block_reduce(all, coder.quantiser);
        case Coder::Family::sign: return kernels().sign_reduce(all, coder.block);
        default: return kernels().cast_reduce(all, coder.cast);
    }
}

bool is_finite(const float* values, std::int64_t size) { return kernels().is_finite(values, size); }

bool is_plain(const Coder& coder) {
    return coder.family == Coder::Family::cast && coder.cast == codec::Short::fp32;
}

}  // namespace syncline::wire
