// The codec kernels as compiled for portable; CMakeLists.txt gives this file its own flags.
#include "codec_kernels.hpp"

namespace syncline::codec {

const Kernels* portable_kernels() { return &kKernels; }

}  // namespace syncline::codec
