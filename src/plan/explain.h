// The page of `fourfold plan --explain MxNxK --arch sm120`: our row's bytes beside what a depth computed
// apart from its storage would ask for, step by step, and the other ways such a tile goes wrong elsewhere.
// Text only; the caller brings the rows of its kernels and prints.
#pragma once

#include <string>
#include <vector>

#include "plan/arch.h"
#include "plan/picture.h"
#include "plan/row_facts.h"
#include "plan/row_tables.h"
#include "plan/tile.h"

namespace fourfold::plan {

// `rows` may be the whole table; the rows of this tile and architecture are picked from it, and there may be
// none.
std::string explain(const Tile& tile, const ArchFacts& arch, const std::vector<RowFacts>& rows,
                    const PictureStyle& style = {});

// The picture of the best known overflow alone: 256x128x128 with the fused finalize epilogue, 1,024 bytes
// too many.
std::string overflow_picture(const PictureStyle& style = {});

}  // namespace fourfold::plan
