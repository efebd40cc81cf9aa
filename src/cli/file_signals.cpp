#include "cli/file_signals.h"

#include <atomic>

#include "base/error.h"

namespace fourfold::cli {
namespace {

std::atomic<bool> asked_to_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");

void note(int) { asked_to_stop = true; }

void install(int signal, void (*handler)(int), struct sigaction& before) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, &before);
}

}  // namespace

FileSignals::FileSignals() {
  asked_to_stop = false;
  install(SIGINT, note, interrupt_);
  install(SIGTERM, note, terminate_);
  install(SIGXFSZ, SIG_IGN, file_size_);
}

FileSignals::~FileSignals() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGXFSZ, &file_size_, nullptr);
}

bool FileSignals::asked() { return asked_to_stop; }

void FileSignals::stop_if_asked() {
  if (asked()) fail(Code::cancelled, "stopped; what was written has been removed");
}

}  // namespace fourfold::cli
