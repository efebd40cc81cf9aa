#include "cli/report_file.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/json_writer.h"
#include "cli/build_info.h"

namespace fourfold::cli {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

template <class T>
std::string one_value(const T& value) {
  return JsonWriter().value(value).finish();
}

std::string scalar_text(const json::value& value) {
  switch (value.kind()) {
    case json::kind::bool_: return one_value(value.get_bool());
    case json::kind::int64: return one_value(value.get_int64());
    case json::kind::uint64: return one_value(value.get_uint64());
    case json::kind::double_: return one_value(value.get_double());
    case json::kind::string: return one_value(view(value.get_string()));
    default: return "null";
  }
}

bool is_scalar(const json::value& value) { return !value.is_array() && !value.is_object(); }

// Fits a line: a scalar, some numbers, or an object of such.
bool is_flat(const json::value& value) {
  if (const json::array* items = value.if_array())
    return std::all_of(items->begin(), items->end(),
                       [](const json::value& item) { return is_scalar(item) && !item.is_string(); });
  if (const json::object* members = value.if_object())
    return std::all_of(members->begin(), members->end(), [](const json::key_value_pair& member) {
      return !member.value().is_object() && is_flat(member.value());
    });
  return true;
}

// `indent` of the line that the value begins in; negative: all in that line.
void append(std::string& out, const json::value& value, int indent) {
  if (is_scalar(value)) {
    out += scalar_text(value);
    return;
  }
  const bool is_array = value.is_array();
  const int inner = indent < 0 || (is_array && is_flat(value)) ? -1 : indent + 1;
  bool is_first = true;
  const auto begin_item = [&] {
    if (!is_first) out += inner < 0 ? ", " : ",";
    if (inner >= 0) out += "\n" + std::string(static_cast<std::size_t>(inner), ' ');
    is_first = false;
  };
  out += is_array ? '[' : '{';
  if (is_array)
    for (const json::value& item : value.get_array()) {
      begin_item();
      append(out, item, is_flat(item) ? -1 : inner);
    }
  else
    for (const json::key_value_pair& member : value.get_object()) {
      begin_item();
      out += one_value(std::string_view(member.key().data(), member.key().size())) + ": ";
      append(out, member.value(), inner);
    }
  if (inner >= 0 && !is_first) out += "\n" + std::string(static_cast<std::size_t>(indent), ' ');
  out += is_array ? ']' : '}';
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

std::string json_text(const json::value& value) {
  std::string out;
  append(out, value, 0);
  return out + "\n";
}

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
  // Of the whole text: a device has one number in all parts.
  write_file(path_, doctor::with_numbered_pci(json_text(whole)));
}

json::value ReportFile::cleansed(const json::value& value) const {
  if (value.is_string()) return json::value(doctor::without_names(view(value.get_string()), names_));
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
