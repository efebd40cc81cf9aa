// Bars of shared memory for a terminal: each part a run of one glyph, the block's limit a mark, and what
// does not fit sticking out past it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/row_facts.h"

namespace fourfold::plan {

struct PictureStyle {
  int width = 100;     // of the whole line, label and result included
  bool utf8 = false;   // blocks instead of letters
  bool color = false;  // the overflow in red
};

struct Bar {
  std::string label;           // left of the bar
  std::vector<RowPart> parts;  // in address order; their sum is the bar's length
};

// The glyph of the part at this index of a bar: 'A', 'B', ... or one of four shades.
std::string_view part_glyph(int part_index, const PictureStyle& style);

// The bars, all to one scale, and below them a ruler with the limit. Bytes past the limit are drawn as X (or
// a red block) and take a column even when they are fewer than a column's worth.
std::string draw_bars(const std::vector<Bar>& bars, int limit_bytes, const PictureStyle& style);

// The same bars with a legend line for each, its parts named with their bytes.
std::string draw_bars_with_legend(const std::vector<Bar>& bars, int limit_bytes, const PictureStyle& style);

}  // namespace fourfold::plan
