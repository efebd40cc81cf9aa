// While a command writes files: an interrupt stops the work where it may stop, so that what was begun can be
// removed, and a limit on file sizes is an error instead of the end of the process.
#pragma once

#include <csignal>

namespace fourfold::cli {

class FileSignals {
 public:
  FileSignals();
  ~FileSignals();
  FileSignals(const FileSignals&) = delete;
  FileSignals& operator=(const FileSignals&) = delete;

  // Whether somebody pressed Ctrl-C, or asked the process to end, since this object was made.
  static bool asked();
  // Throws cancelled then.
  static void stop_if_asked();

 private:
  struct sigaction interrupt_, terminate_, file_size_;
};

}  // namespace fourfold::cli
