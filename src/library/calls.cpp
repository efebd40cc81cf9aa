#include "library/calls.h"

#include <algorithm>
#include <utility>

namespace fourfold::library {

void Inbox::put(engine::Delivery delivery) {
  const std::lock_guard lock(mutex_);
  deliveries_.push_back(std::move(delivery));
  news_.notify_one();
}

engine::Delivery Inbox::take() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !deliveries_.empty(); });
  engine::Delivery delivery = std::move(deliveries_.front());
  deliveries_.pop_front();
  return delivery;
}

void Inboxes::deliver(std::vector<engine::Delivery>&& deliveries) {
  const std::lock_guard lock(mutex_);
  for (engine::Delivery& delivery : deliveries)
    if (const auto found = waiting_.find(delivery.id); found != waiting_.end())
      found->second->put(std::move(delivery));
}

Call::Call(engine::Engine& engine, Inboxes& inboxes, std::vector<engine::Submission> submissions)
    : engine_(engine), inboxes_(inboxes) {
  try {
    for (engine::Submission& submission : submissions) {
      // The inbox is known before the engine can deliver to it.
      const std::lock_guard lock(inboxes_.mutex_);
      ids_.push_back(engine_.submit(std::move(submission)));
      inboxes_.waiting_[ids_.back()] = &inbox_;
    }
  } catch (...) {
    end();
    throw;
  }
}

Call::Taken Call::take() {
  engine::Delivery delivery = inbox_.take();
  const auto at = std::ranges::find(ids_, delivery.id);
  return {static_cast<std::size_t>(at - ids_.begin()), std::move(delivery)};
}

void Call::end() {
  {
    const std::lock_guard lock(inboxes_.mutex_);
    for (const engine::RequestId id : ids_) inboxes_.waiting_.erase(id);
  }
  for (const engine::RequestId id : ids_) engine_.cancel(id);
}

}  // namespace fourfold::library
