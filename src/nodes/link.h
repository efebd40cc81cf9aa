// A connection between the leader and one rank, both of which know the token: frames one way and the other,
// and a sign of life every half second. Whoever is silent for four seconds is lost, whatever either side is
// computing: a thread of its own listens.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "nodes/frames.h"

namespace fourfold::nodes {

struct LinkTiming {
  std::chrono::milliseconds beat{500};
  // With the beat less than the five seconds within which a lost machine is to be noticed.
  std::chrono::milliseconds silence{4000};
};

class Link {
 public:
  // on_lost: called once, from any thread, also by close(); it must not be the last to let go of the link.
  Link(Socket socket, const LinkTiming& timing, std::function<void(const std::string& why)> on_lost = {});
  ~Link();
  // Until then nothing is heard, and nobody is lost.
  void start();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Any thread. Throws LinkLost.
  void send(Frame kind, std::span<const std::byte> head = {}, std::span<const std::byte> body = {});
  // The next frame that is no sign of life. Throws LinkLost behind the last one.
  Message receive();
  // What receive() would bring now, if anything does. Throws LinkLost when it is lost.
  std::optional<Frame> next() const;
  void close(const std::string& why);
  // Until it is lost, and no longer than this.
  void wait_for_end(std::chrono::milliseconds patience);

 private:
  void listen();
  void beat();

  Socket socket_;
  const LinkTiming timing_;
  const std::function<void(const std::string& why)> on_lost_;
  std::mutex sending_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable news_;
  std::deque<Message> inbox_;
  bool closes_ = false;              // somebody does
  std::optional<std::string> lost_;  // behind on_lost: whoever is told finds it done
  std::thread listener_, beater_;
};

}  // namespace fourfold::nodes
