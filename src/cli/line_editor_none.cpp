// A program built without libedit.
#include "cli/line_editor.h"

namespace fourfold::cli {

std::unique_ptr<LineEditor> make_line_editor(const LineEditorOptions&, const InterruptWatch&,
                                             std::string& notice) {
  notice = "this program was built without libedit, so lines cannot be edited and are not remembered";
  return nullptr;
}

}  // namespace fourfold::cli
