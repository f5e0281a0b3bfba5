// The kernels of the variant that includes this.
#pragma once

#include "codec_block.hpp"
#include "codec_cast.hpp"
#include "codec_low_rank.hpp"
#include "codec_sign.hpp"
#include "codec_sparse.hpp"

namespace syncline::codec {
namespace {

constexpr Kernels kKernels{block_encode,  block_decode,    sign_encode,    sign_decode,   cast_encode,
                           cast_decode,   fp8_encode,      fp8_decode,     threshold,     select,
                           random_encode, random_decode,   low_rank_begin, low_rank_middle, low_rank_finish};

}  // namespace
}  // namespace syncline::codec
