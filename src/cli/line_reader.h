// Lines from a descriptor, interruptible: standard streams start a read anew when a signal breaks it.
#pragma once

#include <string>

#include "cli/interrupt.h"

namespace fourfold::cli {

class LineReader {
 public:
  LineReader(int descriptor, const InterruptWatch& watch) : descriptor_(descriptor), watch_(watch) {}

  enum class Outcome { line, end, interrupted };
  // The line without its end; the last one need not have any. Throws io when reading fails, invalid_request
  // for a line of more than 16 MiB.
  Outcome read(std::string& line);

 private:
  bool take_line(std::string& line);

  int descriptor_;
  const InterruptWatch& watch_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace fourfold::cli
