// The kernels of the variant that includes this.
#pragma once

#include "codec_block.hpp"
#include "codec_cast.hpp"
#include "codec_sign.hpp"

namespace syncline::codec {
namespace {

constexpr Kernels kKernels{block_encode, block_decode, block_reduce, sign_encode, sign_decode,
                           sign_reduce,  cast_encode,  cast_decode,  cast_reduce, is_finite};

}  // namespace
}  // namespace syncline::codec
