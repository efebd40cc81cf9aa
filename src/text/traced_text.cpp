#include "text/traced_text.h"

#include <algorithm>

namespace fourfold::text {

namespace {

// The first run that ends behind this offset.
auto first_behind(const std::vector<Run>& runs, std::size_t place) {
  return std::upper_bound(runs.begin(), runs.end(), place,
                          [](std::size_t at, const Run& run) { return at < run.end; });
}

}  // namespace

TracedText TracedText::own(std::string bytes) {
  TracedText out(std::move(bytes));
  out.add_own(0, out.size());
  return out;
}

bool TracedText::is_own(std::size_t begin, std::size_t end) const {
  const auto found = first_behind(own_, begin);
  return begin >= end || (found != own_.end() && found->begin <= begin && end <= found->end);
}

void TracedText::add_own(std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  if (!own_.empty() && own_.back().end == begin) {
    own_.back().end = end;
  } else {
    own_.push_back({begin, end});
  }
}

void TracedText::append_own(std::string_view bytes) {
  bytes_ += bytes;
  add_own(bytes_.size() - bytes.size(), bytes_.size());
}

void TracedText::append_slice(const TracedText& other, std::size_t begin, std::size_t end) {
  const std::size_t start = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  for (auto run = first_behind(other.own_, begin); run != other.own_.end() && run->begin < end; ++run)
    add_own(start + std::max(run->begin, begin) - begin, start + std::min(run->end, end) - begin);
}

void TracedText::append_for(std::string_view bytes, const TracedText& other, std::size_t begin,
                            std::size_t end) {
  if (!other.own_.empty() && other.is_own(begin, end)) return append_own(bytes);
  append(bytes);
}

TracedText TracedText::slice(std::size_t begin, std::size_t end) const {
  TracedText out;
  out.append_slice(*this, begin, end);
  return out;
}

void TracedText::cut(std::size_t size) {
  if (size >= bytes_.size()) return;
  bytes_.resize(size);
  own_ = runs_within(own_, 0, size);
}

std::vector<Run> runs_within(const std::vector<Run>& runs, std::size_t begin, std::size_t end) {
  std::vector<Run> out;
  for (auto run = first_behind(runs, begin); run != runs.end() && run->begin < end; ++run)
    out.push_back({std::max(run->begin, begin) - begin, std::min(run->end, end) - begin});
  return out;
}

}  // namespace fourfold::text
