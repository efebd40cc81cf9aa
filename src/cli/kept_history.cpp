#include "cli/kept_history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace fourfold::cli {
namespace {

constexpr int kLines = 1000;
constexpr std::size_t kLineBytes = 16384;

}  // namespace

KeptHistory::KeptHistory(std::filesystem::path file) : file_(std::move(file)), history_(::history_init()) {
  check(history_ != nullptr, "libedit gives a history");
  HistEvent event;
  ::history(history_, &event, H_SETSIZE, kLines);
  ::history(history_, &event, H_SETUNIQUE, 1);
  open();
}

// Reads it, too; locked as long as it is open. What cannot be used is named and left alone from then on.
KeptHistory::File KeptHistory::open() {
  if (file_.empty()) return nullptr;
  const auto give_up = [this](const char* why) {
    notice_ = fourfold::format("{}: {}, so what you type is not remembered", file_.string(), why);
    file_.clear();
    return nullptr;
  };
  std::error_code ignored;
  if (file_.has_parent_path() && std::filesystem::create_directories(file_.parent_path(), ignored))
    std::filesystem::permissions(file_.parent_path(), std::filesystem::perms::owner_all, ignored);
  File file;
  const int descriptor = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (descriptor < 0) return give_up(std::strerror(errno));
  file.reset(::fdopen(descriptor, "r+"));
  struct stat state {};
  if (file == nullptr || ::fstat(descriptor, &state) != 0) return give_up(std::strerror(errno));
  if (!S_ISREG(state.st_mode)) return give_up("it is no file");
  if (::flock(descriptor, LOCK_EX) != 0 || ::fchmod(descriptor, 0600) != 0)
    return give_up(std::strerror(errno));
  HistEvent event;
  ::history(history_, &event, H_CLEAR);
  if (::fstat(descriptor, &state) == 0 && state.st_size > 0 &&
      ::history(history_, &event, H_LOAD, file_.c_str()) < 0)
    return give_up("it is no history of fourfold chat");
  return file;
}

void KeptHistory::enter(const std::string& line) {
  HistEvent event;
  ::history(history_, &event, H_ENTER, line.c_str());
}

void KeptHistory::add(const std::string& line) {
  if (line.size() > kLineBytes) return;
  if (file_.empty()) return enter(line);
  const File file = open();
  enter(line);
  if (file == nullptr) return;
  // The lines are what they were, and one more: written over themselves they survive a full disk, which a
  // file made empty first would not.
  const File copy(std::tmpfile());
  HistEvent event;
  if (copy == nullptr || ::history(history_, &event, H_SAVE_FP, copy.get()) < 0) return;
  std::rewind(copy.get());
  std::rewind(file.get());
  char bytes[4096];
  std::size_t done = 0, count = 0;
  while ((count = std::fread(bytes, 1, sizeof bytes, copy.get())) > 0 &&
         std::fwrite(bytes, 1, count, file.get()) == count)
    done += count;
  if (count == 0 && std::fflush(file.get()) == 0 &&
      ::ftruncate(::fileno(file.get()), static_cast<off_t>(done)) == 0)
    return;
  notice_ = fourfold::format("{}: {}, so this is not remembered", file_.string(), std::strerror(errno));
}

}  // namespace fourfold::cli
