#include "plan/row_tables.h"

#include <algorithm>
#include <string_view>

#include "base/format.h"
#include "base/json_writer.h"
#include "plan/text.h"

namespace fourfold::plan {
namespace {

// The name column is as wide as the longest name; numbers have fixed widths.
int name_columns(const std::vector<RowFacts>& rows) {
  int columns = columns_of("row");
  for (const RowFacts& row : rows) columns = std::max(columns, columns_of(row.row));
  return columns;
}

// Kernels that are no matrix product have no tile.
std::string tile_text(const RowFacts& row) {
  return row.m == 0 && row.n == 0 && row.k == 0 ? "no tile" : tile_name(tile_of(row));
}

std::string row_heading(int name_width) {
  return format("  {}  stages    total    limit    slack  regs  blocks  aliased\n",
                pad_right("row", name_width));
}

std::string row_lines(const RowFacts& row, int name_width) {
  std::string out = format(
      "  {}  {} {} {} {} {} {}  {}\n", pad_right(row.row, name_width), pad_left(format("{}", row.stages), 6),
      pad_left(with_commas(row.total_bytes), 8), pad_left(with_commas(row.limit_bytes), 8),
      pad_left(with_commas(row.limit_bytes - row.total_bytes), 8), pad_left(format("{}", row.registers), 5),
      pad_left(format("{}", row.blocks_per_sm), 7), row.epilogue_aliases_stages ? "yes" : "no");
  std::string parts = format("{} {} {} {}, {} threads ({} math + {} producer warps): ", tile_text(row),
                             row.path, row.format, row.role, row.threads, row.math_warps, row.producer_warps);
  for (std::size_t index = 0; index < row.parts.size(); ++index) {
    if (index > 0) parts += " + ";
    parts += format("{} {}", row.parts[index].name, with_commas(row.parts[index].bytes));
  }
  if (row.parts.empty()) parts += "no shared memory";
  return out + paragraph(parts, 6);
}

std::string refused_lines(const RefusedShape& shape) {
  std::string text =
      format("{} {} {} {} on {}: needs {} bytes of {}", shape.kernel, tile_name(tile_of(shape)), shape.path,
             shape.format, shape.arch, with_commas(shape.needs_bytes), with_commas(shape.limit_bytes));
  const int over_bytes = shape.needs_bytes - shape.limit_bytes;
  if (over_bytes > 0) text += format(", {} too many", with_commas(over_bytes));
  return paragraph(text + ": " + shape.reason, 4, "  -");
}

void write_row(JsonWriter& json, const RowFacts& row) {
  json.begin_object()
      .member("kernel", row.kernel)
      .member("row", row.row)
      .member("arch", row.arch)
      .member("path", row.path)
      .member("format", row.format)
      .member("role", row.role)
      .member("tile", tile_text(row))
      .member("threads", row.threads)
      .member("math_warps", row.math_warps)
      .member("producer_warps", row.producer_warps)
      .member("stages", row.stages)
      .key("parts")
      .begin_array();
  for (const RowPart& part : row.parts) {
    json.begin_object().member("name", part.name).member("bytes", part.bytes).end_object();
  }
  json.end_array()
      .member("total_bytes", row.total_bytes)
      .member("limit_bytes", row.limit_bytes)
      .member("slack_bytes", row.limit_bytes - row.total_bytes)
      .member("registers", row.registers)
      .member("blocks_per_sm", row.blocks_per_sm)
      .member("epilogue_aliases_stages", row.epilogue_aliases_stages)
      .end_object();
}

void write_refused(JsonWriter& json, const RefusedShape& shape) {
  json.begin_object()
      .member("kernel", shape.kernel)
      .member("tile", tile_name(tile_of(shape)))
      .member("path", shape.path)
      .member("format", shape.format)
      .member("arch", shape.arch)
      .member("needs_bytes", shape.needs_bytes)
      .member("limit_bytes", shape.limit_bytes)
      .member("reason", shape.reason)
      .end_object();
}

}  // namespace

std::string table_text(const std::vector<RowFacts>& rows, const std::vector<RefusedShape>& refused) {
  const int name_width = name_columns(rows);
  std::string out;
  const RowFacts* previous = nullptr;
  for (const RowFacts& row : rows) {
    check_row(row);
    if (previous == nullptr || previous->kernel != row.kernel || previous->arch != row.arch) {
      if (previous != nullptr) out += "\n";
      out += format("{} on {}\n{}", row.kernel, row.arch, row_heading(name_width));
    }
    out += row_lines(row, name_width);
    previous = &row;
  }
  if (rows.empty()) out += "no rows\n";
  if (!refused.empty()) out += "\nrefused shapes, with the bytes they would need:\n";
  for (const RefusedShape& shape : refused) out += refused_lines(shape);
  return out;
}

std::string table_json(const std::vector<RowFacts>& rows, const std::vector<RefusedShape>& refused,
                       int limit_bytes) {
  JsonWriter json(JsonWriter::Style::pretty);
  json.begin_object().member("limit_bytes", limit_bytes).key("rows").begin_array();
  for (const RowFacts& row : rows) {
    check_row(row);
    write_row(json, row);
  }
  json.end_array().key("refused").begin_array();
  for (const RefusedShape& shape : refused) write_refused(json, shape);
  json.end_array().end_object();
  return json.finish();
}

}  // namespace fourfold::plan
