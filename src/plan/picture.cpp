#include "plan/picture.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "plan/text.h"

namespace fourfold::plan {
namespace {

constexpr int kResultColumns = 26;  // "102,400  over by 1,024" and room for larger numbers
constexpr int kGapColumns = 4;      // after the label, the limit mark, before the result
constexpr int kLeastBarColumns = 16;

constexpr std::array<std::string_view, 26> kLetters{
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M",
    "N", "O", "P", "Q", "R", "S", "T", "U", "V", "W", "Y", "Z", "*"};  // X is the overflow
constexpr std::array<std::string_view, 4> kShades{"\u2588", "\u2593", "\u2592", "\u2591"};

std::string_view overflow_glyph(const PictureStyle& style) { return style.utf8 ? "\u2573" : "X"; }
std::string_view limit_glyph(const PictureStyle& style) { return style.utf8 ? "\u2502" : "|"; }
std::string_view free_glyph(const PictureStyle& style) { return style.utf8 ? "\u00B7" : "."; }

std::string repeated(std::string_view glyph, int count) {
  std::string out;
  for (int index = 0; index < count; ++index) out += glyph;
  return out;
}

long long bar_bytes(const Bar& bar) {
  long long bytes = 0;
  for (const RowPart& part : bar.parts) bytes += part.bytes;
  return bytes;
}

// One scale for all bars of a picture.
struct Scale {
  long long bytes;  // what `columns` stand for
  int columns;
  int limit_bytes;

  int column_of(long long offset_bytes) const {
    return static_cast<int>((offset_bytes * columns + bytes / 2) / bytes);
  }
  int limit_column() const { return column_of(limit_bytes); }
  int over_columns(const Bar& bar) const {
    const long long end = bar_bytes(bar);
    return end > limit_bytes ? std::max(1, column_of(end) - limit_column()) : 0;
  }
};

// Rounding positions, not lengths, keeps the parts' edges and the limit in their true order.
std::string draw_bar(const Bar& bar, const Scale& scale, const PictureStyle& style) {
  std::string out;
  int column = 0;
  long long offset = 0;
  for (int index = 0; index < static_cast<int>(bar.parts.size()); ++index) {
    offset += bar.parts[static_cast<std::size_t>(index)].bytes;
    const int end = std::min(scale.limit_column(), scale.column_of(offset));
    out += repeated(part_glyph(index, style), end - column);
    column = end;
  }
  out += repeated(free_glyph(style), scale.limit_column() - column);
  out += limit_glyph(style);
  const std::string over = repeated(overflow_glyph(style), scale.over_columns(bar));
  return out + (style.color && !over.empty() ? "\x1b[31m" + over + "\x1b[0m" : over);
}

std::string result_text(long long bytes, int limit_bytes) {
  const long long spare = limit_bytes - bytes;
  if (spare < 0) return format("{}  over by {}", with_commas(bytes), with_commas(-spare));
  if (spare == 0) return format("{}  fits exactly", with_commas(bytes));
  return format("{}  {} to spare", with_commas(bytes), with_commas(spare));
}

int label_columns(const std::vector<Bar>& bars) {
  int columns = 0;
  for (const Bar& bar : bars) columns = std::max(columns, columns_of(bar.label));
  return columns;
}

}  // namespace

std::string_view part_glyph(int part_index, const PictureStyle& style) {
  const auto index = static_cast<std::size_t>(part_index);
  if (style.utf8) return kShades[index % kShades.size()];
  return kLetters[std::min(index, kLetters.size() - 1)];
}

std::string draw_bars(const std::vector<Bar>& bars, int limit_bytes, const PictureStyle& style) {
  const int label_width = label_columns(bars);
  Scale scale{.bytes = limit_bytes,
              .columns = std::max(kLeastBarColumns, style.width - label_width - kGapColumns - kResultColumns),
              .limit_bytes = limit_bytes};
  for (const Bar& bar : bars) scale.bytes = std::max(scale.bytes, bar_bytes(bar));

  // Results start in one column, past the longest overflow.
  int longest_over = 0;
  for (const Bar& bar : bars) longest_over = std::max(longest_over, scale.over_columns(bar));
  std::string out;
  for (const Bar& bar : bars) {
    out += pad_right(bar.label, label_width) + " " + draw_bar(bar, scale, style) +
           spaces(longest_over - scale.over_columns(bar) + 2) + result_text(bar_bytes(bar), limit_bytes) +
           "\n";
  }
  std::string mark = format("{} bytes, the most a block may use ^", with_commas(limit_bytes));
  if (columns_of(mark) >= scale.limit_column()) mark = format("{} ^", with_commas(limit_bytes));
  return out + spaces(label_width + 1) + "0" + pad_left(mark, scale.limit_column()) + "\n";
}

std::string draw_bars_with_legend(const std::vector<Bar>& bars, int limit_bytes, const PictureStyle& style) {
  std::string out = draw_bars(bars, limit_bytes, style);
  const int indent = label_columns(bars) + 1;
  for (const Bar& bar : bars) {
    std::string legend;
    for (int index = 0; index < static_cast<int>(bar.parts.size()); ++index) {
      const RowPart& part = bar.parts[static_cast<std::size_t>(index)];
      if (!legend.empty()) legend += ", ";
      legend += format("{} {} {}", part_glyph(index, style), part.name, with_commas(part.bytes));
    }
    const long long over_bytes = bar_bytes(bar) - limit_bytes;
    if (over_bytes > 0)
      legend += format(", {} past the limit {}", overflow_glyph(style), with_commas(over_bytes));
    out += paragraph(legend, indent, bar.label);
  }
  return out;
}

}  // namespace fourfold::plan
