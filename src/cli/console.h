// Where a command writes, and the numbers it ends with. Commands take this instead of the standard streams,
// so that tests read what a user would.
#pragma once

#include <ostream>
#include <string>

#include "plan/picture.h"

namespace fourfold::cli {

// What `fourfold` returns to its caller.
enum Exit : int {
  kFine = 0,
  kMiss = 1,    // a check failed, a row was refused, a shape has no row
  kFailed = 2,  // an error: bad input, no such device, a file that cannot be written
  kUsage = 64,  // the command line itself is wrong
};

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool utf8 = false;
  bool styled = true;    // a terminal shows colours and faint text: no NO_COLOR, no TERM=dumb
  bool rewrites = true;  // a terminal can write a line anew: no TERM=dumb

  // Whether one line on stderr may be kept up to date.
  bool err_rewrites() const { return err_is_terminal && rewrites; }
};

inline plan::PictureStyle picture_style(const Console& console) {
  return {.width = 100, .utf8 = console.utf8, .color = console.out_is_terminal && console.styled};
}

// Something slower or weaker than the best for this chip was taken. Said aloud; an error under --strict.
struct Degradation {
  std::string what;        // "the FP4 instruction"
  std::string chosen;      // "its emulation"
  std::string instead_of;  // "native W4A4"
  std::string why;
};
void announce(const Console& console, const Degradation& degradation, bool strict);

// Something the user may want to know and did not ask for. Under --strict an error, too.
void notice(const Console& console, const std::string& text, bool strict);

// An error's message and hint, as every command shows them. Names in them may come from a model's files.
void show_error(const Console& console, const std::string& message, const std::string& hint = {});

}  // namespace fourfold::cli
