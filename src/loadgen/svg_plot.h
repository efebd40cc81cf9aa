// Line plots as SVG text, for pages that must work without anything else.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fourfold::loadgen {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
};

struct Plot {
  std::string title, x_name, y_name;
  bool log_x = false;  // powers of two evenly apart; x is more than 0
  std::vector<Line> lines;
};

// Text as HTML and SVG show it.
std::string escaped(std::string_view text);

// 1, 2 or 5 times a power of ten, so that at most `most` steps reach `top` from 0.
double tick_step(double top, int most);

std::string svg(const Plot& plot);

}  // namespace fourfold::loadgen
