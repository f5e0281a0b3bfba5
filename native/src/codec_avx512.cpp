// The codec kernels as compiled for avx512; CMakeLists.txt gives this file its own flags.
#include "codec_kernels.hpp"

namespace syncline::codec {

const Kernels* avx512_kernels() { return &kKernels; }

}  // namespace syncline::codec
