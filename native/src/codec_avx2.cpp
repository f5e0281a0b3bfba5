// The codec kernels as compiled for avx2; CMakeLists.txt gives this file its own flags.
#include "codec_kernels.hpp"

namespace syncline::codec {

const Kernels* avx2_kernels() { return &kKernels; }

}  // namespace syncline::codec
