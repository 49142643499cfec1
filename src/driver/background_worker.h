// One thread that works through a queue. Started by the first job; the jobs hold no Python objects.
//
// Threads: any may add jobs. pause() waits for the end of the job that runs and keeps the thread between two jobs until
// resume(): around a fork, so that the child finds no lock taken that a job takes. The thread needs no GIL, which the
// caller may hold. After stop() jobs are dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace reprise::driver {

class BackgroundWorker {
 public:
  BackgroundWorker() = default;
  ~BackgroundWorker() { stop(); }
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // Urgent jobs go in front of the others.
  void add(std::function<void()> job, bool is_urgent = false) {
    const std::lock_guard lock(queue_mutex_);
    if (is_stopped_) return;
    (is_urgent ? urgent_ : queue_).push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    work_.notify_one();
  }

  void pause() {
    job_mutex_.lock();
    queue_mutex_.lock();
  }
  void resume() {
    queue_mutex_.unlock();
    job_mutex_.unlock();
  }

  void stop() {
    {
      const std::lock_guard lock(queue_mutex_);
      is_stopped_ = true;
      urgent_.clear();
      queue_.clear();
    }
    work_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    std::unique_lock lock(queue_mutex_);
    for (;;) {
      work_.wait(lock, [&] { return is_stopped_ || !urgent_.empty() || !queue_.empty(); });
      if (is_stopped_) return;
      std::deque<std::function<void()>>& queue = urgent_.empty() ? queue_ : urgent_;
      std::function<void()> job = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      {
        const std::lock_guard busy(job_mutex_);
        job();
        job = nullptr;  // what it owned is freed here, too
      }
      lock.lock();
    }
  }

  std::mutex job_mutex_;  // held while the thread does something; before queue_mutex_
  std::mutex queue_mutex_;
  std::condition_variable work_;
  std::deque<std::function<void()>> urgent_, queue_;
  std::thread thread_;
  bool is_stopped_ = false;
};

}  // namespace reprise::driver
