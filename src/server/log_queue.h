// Log lines on their way to a reader that may have stopped reading: a pipe that is full stops whoever writes
// to it. Lines are handed to a thread of their own; when it cannot keep up they are dropped, counted, and
// their number is said.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace fourfold::server {

class LogQueue {
 public:
  // One line with its end; called by one thread, and may wait for as long as it likes.
  using Write = std::function<void(const std::string& line)>;

  explicit LogQueue(Write write, std::size_t lines_max = 1000);
  // What is left has a moment to be written. A thread that hangs in a write is left behind: `write` must not
  // need anything that goes away.
  ~LogQueue();
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Any thread; never waits.
  void add(std::string line);
  // Until all is written, or no longer than this; false: some is left.
  bool flush(std::chrono::milliseconds most);
  std::size_t dropped() const;

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared, const Write& write);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace fourfold::server
