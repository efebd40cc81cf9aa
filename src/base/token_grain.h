// The grain of a sequence: 64 tokens. A page of the KV cache, a block between two anchors of DeltaNet's
// state, the chunk in which a prompt's rows are computed, and so the multiples at which prompts are cut and
// prefixes are shared are one number, so that a prefix ends a page, a block and a chunk at once.
//
// Why 64: it is what the kernels' tiles want. 64 keys of 128 bytes are one bulk copy
// (attention/page_layout.h), the 64 x 64 products of a chunk are one block's tensor-core tiles
// (delta/prompt_prepare.h), and a recurrent state is written once in 64 tokens instead of with each.
#pragma once

namespace fourfold {

inline constexpr int kTokenGrain = 64;

}  // namespace fourfold
