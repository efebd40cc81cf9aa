#include "cli/report_file.h"

#include <charconv>
#include <vector>

#include "base/json_writer.h"
#include "cli/build_info.h"

namespace fourfold::cli {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

void write_value(JsonWriter& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: out.value(nullptr); return;
    case json::kind::bool_: out.value(value.get_bool()); return;
    case json::kind::int64: out.value(value.get_int64()); return;
    case json::kind::uint64: out.value(value.get_uint64()); return;
    case json::kind::double_: out.value(value.get_double()); return;
    case json::kind::string: out.value(view(value.get_string())); return;
    case json::kind::array:
      out.begin_array();
      for (const json::value& item : value.get_array()) write_value(out, item);
      out.end_array();
      return;
    case json::kind::object:
      out.begin_object();
      for (const auto& member : value.get_object()) {
        out.key({member.key().data(), member.key().size()});
        write_value(out, member.value());
      }
      out.end_object();
  }
}

// Commas inside double quotes are text, as `bench moe` writes a shape of four numbers.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"')
      quoted = !quoted;
    else if (letter == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += letter;
  }
  return cells;
}

json::value cell_value(const std::string& cell) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc() || end != cell.data() + cell.size()) return json::value(cell);
  return json::value(number);
}

}  // namespace

json::array lines_of(std::string_view text) {
  json::array lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(json::string(text.data(), end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

json::array rows_of_csv(std::string_view text) {
  json::array rows;
  std::vector<std::string> header;
  for (const json::value& line : lines_of(text)) {
    const std::string_view words = view(line.get_string());
    if (words.empty() || words.front() == '#') continue;
    const std::vector<std::string> cells = cells_of(words);
    if (header.empty()) {
      header = cells;
      continue;
    }
    json::object row;
    for (std::size_t i = 0; i < std::min(cells.size(), header.size()); ++i)
      row[header[i]] = cell_value(cells[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

ReportFile::ReportFile(std::string path, doctor::Names names, const json::object& head)
    : path_(std::move(path)), names_(std::move(names)), head_(cleansed(head).get_object()) {}

void ReportFile::set_part(std::size_t index, const json::value& part) {
  if (parts_.size() <= index) parts_.resize(index + 1);
  parts_[index] = cleansed(part);
}

void ReportFile::write() const {
  json::object whole = head_;
  whole["parts"] = parts_;
  JsonWriter out(JsonWriter::Style::pretty);
  write_value(out, whole);
  write_file(path_, out.finish() + "\n");
}

json::value ReportFile::cleansed(const json::value& value) const {
  if (value.is_string()) return json::value(clean(view(value.get_string())));
  if (value.is_array()) {
    json::array out;
    for (const json::value& item : value.get_array()) out.push_back(cleansed(item));
    return out;
  }
  if (!value.is_object()) return value;
  json::object out;
  for (const auto& member : value.get_object()) out[member.key()] = cleansed(member.value());
  return out;
}

}  // namespace fourfold::cli
