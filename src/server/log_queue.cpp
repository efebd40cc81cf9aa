#include "server/log_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/format.h"

namespace fourfold::server {

namespace {

constexpr auto kFarewell = std::chrono::milliseconds(500);
constexpr std::size_t kLineBytesMax = 8192;

}  // namespace

struct LogQueue::Shared {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::size_t lines_max;
  std::size_t dropped = 0, dropped_said = 0;
  bool writing = false, ending = false, ended = false;
};

LogQueue::LogQueue(Write write, std::size_t lines_max) : shared_(std::make_shared<Shared>()) {
  shared_->lines_max = lines_max;
  thread_ = std::thread([shared = shared_, write = std::move(write)] { work(shared, write); });
}

LogQueue::~LogQueue() {
  flush(kFarewell);
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->lines.clear();
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, kFarewell, [&] { return shared_->ended; });
  lock.unlock();
  if (ended)
    thread_.join();
  else
    thread_.detach();
}

void LogQueue::add(std::string line) {
  if (line.size() > kLineBytesMax) line.resize(kLineBytesMax);
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->lines.size() >= shared_->lines_max) {
      ++shared_->dropped;
      return;
    }
    shared_->lines.push_back(std::move(line));
  }
  shared_->changed.notify_all();
}

bool LogQueue::flush(std::chrono::milliseconds most) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, most, [&] { return shared_->lines.empty() && !shared_->writing; });
}

std::size_t LogQueue::dropped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->dropped;
}

void LogQueue::work(const std::shared_ptr<Shared>& shared, const Write& write) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->ending || !shared->lines.empty(); });
    if (shared->ending) break;
    // Behind the lines that were kept: those that are missing came after them.
    std::string next = std::move(shared->lines.front()) + "\n";
    shared->lines.pop_front();
    if (shared->lines.empty() && shared->dropped > shared->dropped_said) {
      next += fourfold::format("warning server {} log lines were dropped: whoever reads them is too slow\n",
                               shared->dropped - shared->dropped_said);
      shared->dropped_said = shared->dropped;
    }
    shared->writing = true;
    lock.unlock();
    write(next);
    lock.lock();
    shared->writing = false;
    shared->changed.notify_all();
  }
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace fourfold::server
