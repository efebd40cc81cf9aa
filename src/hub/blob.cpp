#include "hub/blob.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "hub/digest.h"

namespace fourfold::hub {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : path_(path), number_(::open(path.c_str(), flags, 0664)) {
    if (number_ < 0) fail(Code::io, "cannot open {}: {}", path.string(), std::strerror(errno));
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  [[noreturn]] void failed(const char* what) const {
    fail(Code::io, "cannot {} {}: {}", what, path_.string(), std::strerror(errno));
  }

 private:
  fs::path path_;
  int number_;
};

// Held while it lives: nobody else fetches the same file. A process that ends gives it back.
class Lock {
 public:
  Lock(const fs::path& path, const std::string& what, const Say& say)
      : file_(path, O_RDWR | O_CREAT | O_CLOEXEC) {
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) file_.failed("lock");
    say(what + ": another process is fetching it; waiting for that");
    while (::flock(file_.number(), LOCK_EX) != 0)
      if (errno != EINTR) file_.failed("lock");
  }

 private:
  Descriptor file_;
};

std::uint64_t size_of(const fs::path& path) {
  std::error_code problem;
  const auto size = fs::file_size(path, problem);
  return problem ? 0 : size;
}

// The file as it grows, part behind part, and its digest with it.
class Growing {
 public:
  Growing(const fs::path& path, const RemoteFile& file, const Arrived& arrived)
      : out_(path, O_RDWR | O_CREAT | O_CLOEXEC), digest_(file.large, file.size) {
    if (size_of(path) > file.size && ::ftruncate(out_.number(), 0) != 0) out_.failed("empty");
    std::string buffer(1 << 20, '\0');
    for (ssize_t got = 0; (got = ::pread(out_.number(), buffer.data(), buffer.size(), offset())) != 0;) {
      if (got < 0) out_.failed("read");
      take(std::string_view(buffer).substr(0, static_cast<std::size_t>(got)));
      arrived(static_cast<std::uint64_t>(got), true);
    }
  }

  std::uint64_t size() const { return size_; }

  void append(std::string_view bytes) {
    for (std::string_view rest = bytes; !rest.empty();) {
      const auto at = offset() + static_cast<off_t>(bytes.size() - rest.size());
      const ssize_t wrote = ::pwrite(out_.number(), rest.data(), rest.size(), at);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) out_.failed("write");
      rest.remove_prefix(static_cast<std::size_t>(wrote));
    }
    take(bytes);
  }

  void sync() const {
    if (::fdatasync(out_.number()) != 0) out_.failed("write");
  }
  std::string hex() { return digest_.hex(); }

 private:
  off_t offset() const { return static_cast<off_t>(size_); }
  void take(std::string_view bytes) {
    digest_.take(bytes);
    size_ += bytes.size();
  }

  Descriptor out_;
  Digest digest_;
  std::uint64_t size_ = 0;
};

// Parts on their way, at most twice as many as connections; each goes to the file when those before it have.
class Parts {
 public:
  Parts(const Settings& settings, const BlobJob& job, Growing& file, const Arrived& arrived, const Say& say)
      : settings_(settings), job_(job), file_(file), arrived_(arrived), say_(say), next_(file.size()) {}

  void run() {
    const std::uint64_t left = job_.file.size - file_.size();
    const auto count = std::min<std::uint64_t>(kConnections, (left + kPartBytes - 1) / kPartBytes);
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work() {
    try {
      Web web(settings_, [this](const std::string& text) {
        const std::scoped_lock lock(mutex_);
        say_(text);
      });
      std::uint64_t begin = 0, end = 0;
      while (take_part(begin, end)) hand_in(begin, fetch(web, begin, end));
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  bool take_part(std::uint64_t& begin, std::uint64_t& end) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || next_ < file_.size() + 2 * kConnections * kPartBytes; });
    if (failure_ || next_ == job_.file.size) return false;
    begin = next_;
    end = next_ = std::min(begin + kPartBytes, job_.file.size);
    return true;
  }

  std::string fetch(Web& web, std::uint64_t begin, std::uint64_t end) {
    std::string part;
    part.reserve(end - begin);
    web.get(
        {.path = job_.path, .what = job_.what, .begin = begin, .end = end, .size = job_.file.size},
        [&](std::string_view bytes) {
          const std::scoped_lock lock(mutex_);
          if (failure_) fail(Code::cancelled, "another part failed");
          part += bytes;
          arrived_(bytes.size(), false);
        },
        &place_);
    return part;
  }

  void hand_in(std::uint64_t begin, std::string part) {
    const std::scoped_lock lock(mutex_);
    waiting_.emplace(begin, std::move(part));
    while (!waiting_.empty() && waiting_.begin()->first == file_.size()) {
      file_.append(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    changed_.notify_all();
  }

  const Settings& settings_;
  const BlobJob& job_;
  Growing& file_;
  const Arrived& arrived_;
  const Say& say_;
  Place place_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_;                            // the first byte that nobody fetches yet
  std::map<std::uint64_t, std::string> waiting_;  // for those before them
  std::exception_ptr failure_;
};

fs::path incomplete_path(const fs::path& blob) { return blob.string() + ".incomplete"; }

// False when the bytes are not those the hub has; they are gone then.
bool fetch_checked(const Settings& settings, const BlobJob& job, const fs::path& blob, const Arrived& arrived,
                   const Say& say, std::string& found) {
  const fs::path incomplete = incomplete_path(blob);
  {
    Growing file(incomplete, job.file, arrived);
    Parts(settings, job, file, arrived, say).run();
    found = file.hex();
    if (found == job.file.etag) file.sync();
  }
  std::error_code ignored;
  if (found != job.file.etag) {
    fs::remove(incomplete, ignored);
    return false;
  }
  fs::rename(incomplete, blob);
  return true;
}

}  // namespace

std::uint64_t bytes_here(const BlobPlace& place, const RemoteFile& file) {
  const fs::path blob = place.blobs / file.etag;
  std::error_code ignored;
  if (fs::exists(blob, ignored)) return file.size;
  const std::uint64_t begun = size_of(incomplete_path(blob));
  return begun <= file.size ? begun : 0;
}

void fetch_blob(const Settings& settings, const BlobJob& job, const BlobPlace& place, const Arrived& arrived,
                const Say& say) {
  const fs::path blob = place.blobs / job.file.etag;
  const Lock lock(place.locks / (job.file.etag + ".lock"), job.what, say);
  std::error_code problem;
  if (fs::exists(blob, problem)) {
    if (size_of(blob) == job.file.size) return arrived(job.file.size, true);
    say(fourfold::format("{}: {} has {} bytes instead of {}; fetching it again", job.what, blob.string(),
                         size_of(blob), job.file.size));
    fs::remove(blob, problem);
  }
  const bool was_begun = size_of(incomplete_path(blob)) > 0;
  std::string found;
  if (fetch_checked(settings, job, blob, arrived, say, found)) return;
  if (was_begun) {  // by somebody else, or of something else
    say(job.what + ": what was here of it is damaged; fetching it from the beginning");
    if (fetch_checked(settings, job, blob, arrived, say, found)) return;
  }
  fail_with_hint(Code::io, "Nothing of it was kept; try again.",
                 "{}: its bytes have the hash {}, and the hub says {}", job.what, found, job.file.etag);
}

}  // namespace fourfold::hub
