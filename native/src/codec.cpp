// Which variant of the codec kernels this machine runs.
#include "syncline/codec.hpp"

#include <stdexcept>

namespace syncline::codec {

const Kernels* portable_kernels();
#if defined(SYNCLINE_X86)
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
#endif

bool supported(Variant variant) {
    switch (variant) {
        case Variant::portable: return true;
#if defined(SYNCLINE_X86)
        case Variant::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
        case Variant::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
        default: return false;
    }
}

Variant best() {
    for (const Variant variant : {Variant::avx512, Variant::avx2}) {
        if (supported(variant)) return variant;
    }
    return Variant::portable;
}

const Kernels& kernels(Variant variant) {
    if (!supported(variant)) throw std::invalid_argument("this machine cannot run that variant of the codec kernels");
#if defined(SYNCLINE_X86)
    if (variant == Variant::avx512) return *avx512_kernels();
    if (variant == Variant::avx2) return *avx2_kernels();
#endif
    return *portable_kernels();
}

}  // namespace syncline::codec
