// Lines as a person types them at a terminal: arrows, history, a paste of many lines as one message. By
// libedit; a program built without it (line_editor_none.cpp) has none, and lines are read plainly.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/interrupt.h"
#include "cli/line_reader.h"

namespace fourfold::cli {

class LineEditor {
 public:
  virtual ~LineEditor() = default;
  // The message without its end, with line ends inside where it has several lines.
  virtual LineReader::Outcome read(std::string& line) = 0;
  // For the arrows, here and in the next start.
  virtual void remember(const std::string& line) = 0;
};

struct LineEditorOptions {
  int input = 0;                       // a terminal
  std::string prompt;                  // shown on stderr
  std::filesystem::path history_file;  // empty: nothing is kept after this start
};

// Null where lines must be read plainly. `notice` is what the user should know: why there is none, or why
// nothing is kept.
std::unique_ptr<LineEditor> make_line_editor(const LineEditorOptions& options, const InterruptWatch& watch,
                                             std::string& notice);

}  // namespace fourfold::cli
