// The file that `fourfold report` writes: JSON, whole after every part, with names taken out of every text.
// JSON because those who receive it compare many; long texts (tables, recordings) are arrays of lines, so
// that whoever sends it can read it first.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "doctor/names.h"

namespace fourfold::cli {

// "a\nb\n" as ["a", "b"].
boost::json::array lines_of(std::string_view text);

// The lines of a CSV as objects by its header; lines that begin with # are left out. Numbers become numbers.
boost::json::array rows_of_csv(std::string_view text);

// As it is written: pretty, but a row of a table is one line, and so are a few numbers.
std::string json_text(const boost::json::value& value);

class ReportFile {
 public:
  // `head` are the members before the parts.
  ReportFile(std::string path, doctor::Names names, const boost::json::object& head);

  void set_part(std::size_t index, const boost::json::value& part);
  // Beside the file, then renamed: what is at `path` is always a whole report.
  void write() const;

  const std::string& path() const { return path_; }
  // A text as this file, or one beside it, may say it.
  std::string clean(std::string_view text) const {
    return doctor::with_numbered_pci(doctor::without_names(text, names_));
  }

 private:
  boost::json::value cleansed(const boost::json::value& value) const;

  std::string path_;
  doctor::Names names_;
  boost::json::object head_;
  boost::json::array parts_;
};

}  // namespace fourfold::cli
