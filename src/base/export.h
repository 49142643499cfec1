// The one macro that makes a symbol of a library visible outside of it.
//
// Both libraries are built with hidden visibility; what another library (or a test) uses carries REPRISE_EXPORT.
// Exception classes that cross a library border need it too, or they cannot be caught by type on the other side.
#pragma once

#define REPRISE_EXPORT __attribute__((visibility("default")))
