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
  // bytes_max: of all jobs that wait or run, together; one is taken whatever its size.
  Workers(int thread_count, std::size_t jobs_max, std::size_t bytes_max)
      : jobs_max_(jobs_max), bytes_max_(bytes_max) {
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

  // bytes: what the job holds until it has run. False: too many wait already, or too large ones.
  bool add(std::size_t bytes, std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || jobs_.size() >= jobs_max_) return false;
      if (bytes_ > 0 && bytes_ + bytes > bytes_max_) return false;
      bytes_ += bytes;
      jobs_.push_back({bytes, std::move(job)});
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
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job.work();
      job.work = nullptr;  // with all it holds
      lock.lock();
      bytes_ -= job.bytes;
    }
  }

  struct Job {
    std::size_t bytes;
    std::function<void()> work;
  };

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::size_t jobs_max_, bytes_max_;
  std::size_t bytes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fourfold::server
