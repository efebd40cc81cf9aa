#include "nodes/link.h"

#include <utility>

namespace fourfold::nodes {
namespace {

// One call is under way at a time; what came before it was given up may lie here, too.
constexpr std::size_t kInboxMax = 64;

}  // namespace

Link::Link(Socket socket, const LinkTiming& timing, std::function<void(const std::string& why)> on_lost)
    : socket_(std::move(socket)), timing_(timing), on_lost_(std::move(on_lost)) {}

void Link::start() {
  listener_ = std::thread([this] { listen(); });
  beater_ = std::thread([this] { beat(); });
}

Link::~Link() {
  close("it is not needed any more");
  if (listener_.joinable()) listener_.join();
  if (beater_.joinable()) beater_.join();
}

void Link::listen() {
  try {
    for (;;) {
      Message message = receive_frame(socket_, kMemberBytes, {.silence = timing_.silence});
      if (message.kind == Frame::beat) continue;
      const std::lock_guard lock(mutex_);
      if (inbox_.size() >= kInboxMax) throw LinkLost("it sends what nobody asked for");
      inbox_.push_back(std::move(message));
      news_.notify_all();
    }
  } catch (const std::exception& error) {
    close(error.what());
  }
}

void Link::beat() {
  std::unique_lock lock(mutex_);
  while (!news_.wait_for(lock, timing_.beat, [&] { return lost_.has_value(); })) {
    lock.unlock();
    // While something else is sent its bytes are the sign of life.
    if (std::unique_lock free(sending_, std::try_to_lock); free.owns_lock()) {
      try {
        send_frame(socket_, Frame::beat, {}, {}, timing_.silence);
      } catch (const LinkLost& lost) {
        free.unlock();
        close(lost.what());
      }
    }
    lock.lock();
  }
}

void Link::send(Frame kind, std::span<const std::byte> head, std::span<const std::byte> body) {
  try {
    const std::lock_guard lock(sending_);
    return send_frame(socket_, kind, head, body, timing_.silence);
  } catch (const LinkLost& lost) {
    close(lost.what());
  }
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return lost_.has_value(); });
  throw LinkLost(*lost_);
}

Message Link::receive() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !inbox_.empty() || lost_; });
  if (inbox_.empty()) throw LinkLost(*lost_);
  Message message = std::move(inbox_.front());
  inbox_.pop_front();
  return message;
}

std::optional<Frame> Link::next() const {
  const std::lock_guard lock(mutex_);
  if (!inbox_.empty()) return inbox_.front().kind;
  if (lost_) throw LinkLost(*lost_);
  return std::nullopt;
}

void Link::wait_for_end(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, patience, [&] { return lost_.has_value(); });
}

void Link::close(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closes_, true)) return;
  }
  socket_.shut();
  if (on_lost_) on_lost_(why);
  const std::lock_guard lock(mutex_);
  lost_ = why;
  news_.notify_all();
}

}  // namespace fourfold::nodes
