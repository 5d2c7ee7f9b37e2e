// Custom code as a whole: checks a snippet of either tier.
#include "spec/snippet.h"

namespace attnjit::spec {

Status check_snippet(const CustomCode&, SnippetKind) { return {}; }

}  // namespace attnjit::spec
