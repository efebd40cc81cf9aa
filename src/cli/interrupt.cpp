#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace fourfold::cli {
namespace {

// A signal handler sees nothing but globals; these belong to the one watch that lives.
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);
int g_pipe[2] = {-1, -1};

void note_interrupt(int) {
  const int error = errno;
  g_interrupted = true;
  // A full pipe has been noticed already.
  [[maybe_unused]] const auto written = ::write(g_pipe[1], "!", 1);
  errno = error;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  check(g_pipe[0] < 0, "there is one interrupt watch at a time");
  if (::pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    fail(Code::io, "cannot make a pipe: {}", std::strerror(errno));
  g_interrupted = false;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  ::sigaction(SIGINT, &action, &before_);
}

InterruptWatch::~InterruptWatch() {
  ::sigaction(SIGINT, &before_, nullptr);
  ::close(g_pipe[0]);
  ::close(g_pipe[1]);
  g_pipe[0] = g_pipe[1] = -1;
}

bool InterruptWatch::interrupted() const { return g_interrupted; }
int InterruptWatch::descriptor() const { return g_pipe[0]; }

void InterruptWatch::clear() {
  char bytes[64];
  while (::read(g_pipe[0], bytes, sizeof bytes) > 0) {
  }
  g_interrupted = false;
}

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace fourfold::cli
