// Threads for what takes long enough to be felt on the server's own: parsing, templates, tokenising, schemas.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fourfold::server {

class Workers {
 public:
  Workers(int thread_count, std::size_t jobs_max) : jobs_max_(jobs_max) {
    for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { work(); });
  }
  // Jobs that have not begun are dropped.
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      jobs_.clear();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // False: too many wait already.
  bool add(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || jobs_.size() >= jobs_max_) return false;
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
    return true;
  }
  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }

 private:
  void work() {
    pthread_setname_np(pthread_self(), "ff-requests");  // for whoever looks where the time goes
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::size_t jobs_max_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fourfold::server
